"""Time to live: an expired handle is gone for everyone at once, and from the disk at the next sweep."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.backends.sqlite import SQLiteBackend
from mcpstated.daemon.testing import ManualTime, RunningEngine, open_engine
from mcpstated.protocol.errors import HandleExpired, HandleNotFound, InvalidInput
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller

SECOND = 1 / 86_400
DAY = 86_400.0


async def assert_expired(running: RunningEngine, caller: Caller, handle: str) -> None:
    """Check every method that could serve the content."""
    store = running.store
    for call in (
        lambda: store.load(caller, handle),
        lambda: store.load(caller, handle, version=1),
        lambda: store.patch(caller, handle, [Append("l", 1)]),
        lambda: store.save(caller, handle, document={}, expect_version=1),
        lambda: store.touch(caller, handle, ttl_days=1),
    ):
        with pytest.raises(HandleExpired) as caught:
            await call()
        assert caught.value.details == {
            "handle": handle,
            "expired_at": "2023-11-14T22:13:21.000Z",
            "ttl_days": SECOND,
        }
    page = await store.list(caller)
    assert (page.handles, page.total) == ((), 0)
    assert (await store.status()).handles == 0


@pytest.mark.requirement("C21")
async def test_an_expired_handle_is_expired_in_every_method(either: RunningEngine, alice: Caller) -> None:
    """C21: no content is served after the deadline, to the second and before any sweep."""
    handle = (await either.store.mint(alice, kind="a", document={"l": []}, ttl_days=SECOND)).info.handle
    either.time.pass_seconds(0.999)
    assert (await either.store.load(alice, handle)).document == {"l": []}
    assert (await either.store.list(alice)).total == 1
    either.time.pass_seconds(0.001)
    await assert_expired(either, alice, handle)


@pytest.mark.requirement("C21")
async def test_a_restart_across_the_deadline_serves_nothing(path: Path, alice: Caller) -> None:
    """C21: the deadline is on disk, not in a timer."""
    time = ManualTime()
    async with open_engine(path, time=time) as running:
        handle = (await running.store.mint(alice, kind="a", document={"l": []}, ttl_days=SECOND)).info.handle
    time.pass_seconds(2)
    async with open_engine(path, time=time) as running:
        await assert_expired(running, alice, handle)


@pytest.mark.requirement("C21")
async def test_the_next_sweep_takes_it_away_and_says_so(engine: RunningEngine, alice: Caller) -> None:
    """C21: gone like a deleted one, also from the disk; a handle that was touched in time stays."""
    store = engine.store
    gone = (await store.mint(alice, kind="a", document={"l": ["secret"]}, ttl_days=SECOND)).info.handle
    kept = (await store.mint(alice, kind="a", document={"l": []}, ttl_days=SECOND)).info.handle
    await store.touch(alice, kept, ttl_days=1)
    engine.time.pass_seconds(2)
    with trio.fail_after(5), engine.feed.subscribe(user="alice") as subscription:
        await store.sweep()
        event = await anext(subscription)
    assert (event.action, event.handle, event.version) == ("expire", gone, 2)
    with pytest.raises(HandleNotFound):
        await store.load(alice, gone)
    with pytest.raises(HandleNotFound):
        await store.delete(alice, gone)
    assert [info.handle for info in (await store.list(alice)).handles] == [kept]
    assert rows_of(engine, "handles") == 1
    assert rows_of(engine, "checkpoints") == 1


def rows_of(engine: RunningEngine, table: str) -> object:
    """Return the number of rows of a table, seen from outside."""
    counts = {
        "handles": "SELECT count(*) FROM handles",
        "checkpoints": "SELECT count(*) FROM checkpoints",
        "changes": "SELECT count(*) FROM changes",
    }
    db = apsw.Connection(str(engine.backend._path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute(counts[table]).get
    finally:
        db.close()


async def test_an_expired_handle_can_be_deleted(either: RunningEngine, alice: Caller) -> None:
    """Deleting asks for an end that has come already; it is no error until the sweep."""
    store = either.store
    handle = (await store.mint(alice, kind="a", document={}, ttl_days=SECOND)).info.handle
    either.time.pass_seconds(2)
    assert (await store.delete(alice, handle)).is_deleted
    with pytest.raises(HandleNotFound):
        await store.load(alice, handle)


async def test_the_sweeper_runs_by_itself(path: Path, alice: Caller) -> None:
    """With its own interval and without being asked."""
    async with open_engine(path, sweep_seconds=0.01) as running:
        await running.store.mint(alice, kind="a", document={}, ttl_days=SECOND)
        running.time.pass_seconds(2)
        with trio.fail_after(10), running.feed.subscribe(user=None) as subscription:
            assert (await anext(subscription)).action == "expire"


@pytest.mark.requirement("C21")
@pytest.mark.parametrize("step", [-DAY, -400 * DAY])
async def test_a_backward_step_neither_revives_nor_kills(path: Path, alice: Caller, step: float) -> None:
    """C21: neither at once, nor over a restart, nor as time goes on."""
    time = ManualTime()
    async with open_engine(path, time=time) as running:
        store = running.store
        dead = (await store.mint(alice, kind="a", document={}, ttl_days=SECOND)).info.handle
        alive = (await store.mint(alice, kind="a", document={}, ttl_days=1)).info.handle
        time.pass_seconds(2)
        await store.patch(alice, alive, [])
        await store.touch(alice, (await store.mint(alice, kind="a", document={})).info.handle, ttl_days=1)
        time.step_wall(step)
        with pytest.raises(HandleExpired):
            await store.load(alice, dead)
        await store.load(alice, alive)
    async with open_engine(path, time=time) as running:
        store = running.store
        with pytest.raises(HandleExpired):
            await store.load(alice, dead)
        await store.load(alice, alive)
        time.pass_seconds(DAY - 3)
        await store.load(alice, alive)
        time.pass_seconds(2)
        with pytest.raises(HandleExpired):
            await store.load(alice, alive)


@pytest.mark.requirement("C21")
async def test_a_clock_set_back_before_a_restart_revives_nothing(path: Path, alice: Caller) -> None:
    """C21: nothing was written or swept after the deadline, and yet the next daemon knows that it passed."""
    time = ManualTime()
    async with open_engine(path, time=time) as running:
        dead = (await running.store.mint(alice, kind="a", document={}, ttl_days=SECOND)).info.handle
        time.pass_seconds(2)
    time.step_wall(-DAY)
    async with open_engine(path, time=time) as running:
        with pytest.raises(HandleExpired):
            await running.store.load(alice, dead)


@pytest.mark.requirement("C21")
async def test_every_sweep_keeps_the_time_and_never_an_earlier_one(path: Path) -> None:
    """C21: a daemon that is killed has not forgotten more than the time since its last sweep."""
    async with open_engine(path) as running:
        running.time.pass_seconds(5)
        await running.store.sweep()
        noted = running.time.wall
        await running.backend.note_time(noted - 100, "")
        second = SQLiteBackend(path, limits=Limits())
        assert (await second.open()).newest_at == noted
        await second.aclose()


@pytest.mark.requirement("C21")
@pytest.mark.parametrize("step", [8 * 3_600.0, DAY])
async def test_a_step_forward_that_is_taken_back_kills_nothing(
    engine: RunningEngine, alice: Caller, step: float
) -> None:
    """C21: a wrong clock must not empty the store at the next sweep."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={}, ttl_days=0.1)).info.handle
    engine.time.step_wall(step)
    await store.sweep()
    await store.load(alice, handle)
    engine.time.pass_seconds(300)
    await store.sweep()
    engine.time.step_wall(-step)
    await store.sweep()
    assert (await store.load(alice, handle)).info.version == 1


@pytest.mark.requirement("C24")
@pytest.mark.parametrize("ttl", [1e15, float("inf"), float("nan"), True, 0, -1, "7", 36_525.1, [], 10**400])
async def test_a_time_to_live_out_of_range_is_refused_at_creation_and_renewal(
    engine: RunningEngine, alice: Caller, ttl: float
) -> None:
    """C24: with the range in the error, and the list still works."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={})).info.handle
    for call in (
        lambda: store.mint(alice, kind="a", document={}, ttl_days=ttl),
        lambda: store.save(alice, handle, document={"n": 1}, expect_version=1, ttl_days=ttl),
        lambda: store.touch(alice, handle, ttl_days=ttl),
    ):
        with pytest.raises(InvalidInput, match="36525") as caught:
            await call()
        assert caught.value.details["field"] == "ttl_days"
    page = await store.list(alice)
    assert [info.version for info in page.handles] == [1]


@pytest.mark.requirement("C24")
async def test_any_time_to_live_in_range_is_taken_as_it_is(engine: RunningEngine, alice: Caller) -> None:
    """C24: a stated rule: above 0 and at most 36,525 days, however short; None is for ever."""
    store = engine.store
    for ttl in (1e-9, 5e-324, 36_525, 36_525.0, None):
        info = (await store.mint(alice, kind="a", document={}, ttl_days=ttl)).info
        expected = None if ttl is None else engine.time.wall + ttl * DAY
        assert info.expires_at == expected
    assert (await store.list(alice)).total == 4  # 5e-324 days are over before they begin
    engine.time.pass_seconds(1)
    assert (await store.list(alice)).total == 3
