"""The feed tells subscribers what changed, in order, and never waits for one of them."""

from __future__ import annotations

import pytest
import trio

from mcpstated.daemon.feed import Feed, FeedEvent, FeedLagged
from mcpstated.daemon.testing import RunningEngine
from mcpstated.protocol.patches import SetKey
from mcpstated.protocol.store import Caller, HandleId, Revision, Version


def event(revision: int, user: str = "alice") -> FeedEvent:
    """Return some event."""
    return FeedEvent(
        Revision(revision), "agent", user, HandleId("a_bcdefghi"), "a", Version(1), "save", "w", 1.0
    )


async def test_subscribers_get_what_is_published_after_they_came() -> None:
    """A subscription begins with now; what was before is read from the store."""
    feed = Feed()
    feed.publish([event(1)])
    with feed.subscribe(user=None) as subscription:
        feed.publish([event(2), event(3)])
        with trio.fail_after(5):
            assert (await anext(subscription)).revision == 2
            assert (await anext(subscription)).revision == 3


@pytest.mark.requirement("P5")
async def test_a_user_hears_only_of_own_handles() -> None:
    """P5: handle names and times of others are not for everyone."""
    feed = Feed()
    with feed.subscribe(user="bob") as subscription:
        feed.publish([event(1, "alice"), event(2, "bob"), event(3, "bobby")])
        feed.publish([event(4, "bob")])
        with trio.fail_after(5):
            assert [(await anext(subscription)).revision for _ in range(2)] == [2, 4]


@pytest.mark.requirement("P7")
async def test_a_subscriber_that_lags_is_cut_off_and_told_after_what_it_has() -> None:
    """P7: it loses its subscription, nobody else notices."""
    feed = Feed()
    with feed.subscribe(user=None, buffer=2) as slow, feed.subscribe(user=None) as quick:
        feed.publish([event(revision) for revision in range(1, 6)])
        with trio.fail_after(5):
            assert [(await anext(slow)).revision for _ in range(2)] == [1, 2]
            with pytest.raises(FeedLagged):
                await anext(slow)
            assert [(await anext(quick)).revision for _ in range(5)] == [1, 2, 3, 4, 5]


async def test_a_subscription_that_ended_costs_nothing() -> None:
    """Publishing after the block is not an error, and reading ends."""
    feed = Feed()
    with feed.subscribe(user=None) as subscription:
        pass
    feed.publish([event(1)])
    with trio.fail_after(5), pytest.raises(trio.ClosedResourceError):
        await anext(subscription)


@pytest.mark.requirement("P3")
async def test_every_kind_of_change_is_published_once_in_the_order_of_revisions(
    engine: RunningEngine, alice: Caller
) -> None:
    """P3: everyone sees the same order, and what changed nothing is not told."""
    store = engine.store
    with trio.fail_after(10), engine.feed.subscribe(user=None) as subscription:
        handle = (await store.mint(alice, kind="task", document={"a": 1}, ttl_days=1)).info.handle
        await store.patch(alice, handle, [SetKey("", "a", 2)])
        await store.patch(alice, handle, [SetKey("", "a", 2)])
        await store.save(alice, handle, document={"b": 1}, expect_version=2)
        await store.touch(alice, handle, ttl_days=2)
        other = (await store.mint(alice, kind="task", document={})).info.handle
        await store.delete(alice, other)
        engine.time.pass_seconds(3 * 86_400)
        await store.sweep()
        events = [await anext(subscription) for _ in range(7)]
    assert [(it.action, it.version) for it in events] == [
        ("mint", 1),
        ("patch", 2),
        ("save", 3),
        ("touch", 4),
        ("mint", 1),
        ("delete", 2),
        ("expire", 5),
    ]
    assert [it.revision for it in events] == sorted({it.revision for it in events})
    assert {it.kind for it in events} == {"task"}
    assert events[0].writer == alice.writer
