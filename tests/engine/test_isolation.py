"""Another user's handle is like one that never was."""

from __future__ import annotations

import re

import pytest

from mcpstated.daemon.testing import RunningEngine
from mcpstated.protocol.errors import HandleExpired, HandleNotFound, InvalidInput
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


@pytest.mark.requirement("P5", "C35")
async def test_another_users_handle_answers_as_a_random_one_does(
    either: RunningEngine, alice: Caller, bob: Caller
) -> None:
    """C35: word for word, in every method, hot and cold, live and expired."""
    store = either.store
    handle = (await store.mint(alice, kind="a", document={"l": ["secret"]})).info.handle
    expired = (await store.mint(alice, kind="a", document={"l": []}, ttl_days=1e-6)).info.handle
    either.time.pass_seconds(10)
    with pytest.raises(HandleExpired):
        await store.load(alice, expired)
    for name in (handle, expired):
        for method in (
            store.load,
            lambda who, what: store.load(who, what, version=1),
            lambda who, what: store.save(who, what, document={}, expect_version=1),
            lambda who, what: store.save(who, what, document={}, expect_version=9),
            lambda who, what: store.patch(who, what, [Append("l", 1)]),
            lambda who, what: store.patch(who, what, []),
            lambda who, what: store.touch(who, what, ttl_days=1),
            store.delete,
        ):
            answers = []
            for what in (name, "a_zzzzzzzz"):
                for who in (bob, Caller("alice", "w", space="app")):
                    with pytest.raises(HandleNotFound) as caught:
                        await method(who, what)
                    assert caught.value.details == {"handle": what}
                    answers.append(caught.value.message.replace(what, "X"))
            assert len(set(answers)) == 1
    assert (await store.list(bob)).total == 0
    assert (await store.load(alice, handle)).info.version == 1


@pytest.mark.requirement("C35")
@pytest.mark.parametrize("user", ["", " a", "a ", "a\n", "\x00", "x" * 257, "x" * 10_240, "\ud800"])
async def test_a_user_that_cannot_be_told_apart_is_refused(engine: RunningEngine, user: str) -> None:
    """C35: white space around a name, control characters and endless names are mistakes of a host."""
    with pytest.raises(InvalidInput) as caught:
        await engine.store.mint(Caller(user, "w"), kind="a", document={})
    assert caught.value.details == {"field": "user"}


@pytest.mark.requirement("C35")
async def test_users_are_told_apart_by_their_exact_code_points(engine: RunningEngine) -> None:
    """C35: no case folding, no normalisation, no path meaning: these are eight users."""
    users = ["a", "A", "a/b", "../a", "%", "_", COMPOSED, DECOMPOSED]
    handles = {}
    for user in users:
        receipt = await engine.store.mint(Caller(user, "w"), kind="a", document={"user": user})
        handles[user] = receipt.info.handle
    for user in users:
        page = await engine.store.list(Caller(user, "w"))
        assert [info.handle for info in page.handles] == [handles[user]]
        for other in users:
            if other != user:
                with pytest.raises(HandleNotFound):
                    await engine.store.load(Caller(user, "w"), handles[other])


@pytest.mark.requirement("P5")
async def test_handles_are_random_and_unlike_each_other(engine: RunningEngine, alice: Caller) -> None:
    """P5: 40 bits of the system's own randomness; no counter, no time."""
    names = [(await engine.store.mint(alice, kind="k", document={})).info.handle for _ in range(50)]
    assert len(set(names)) == 50
    assert all(re.fullmatch(r"k_[abcdefghijkmnpqrstuvwxyz23456789]{8}", name) for name in names)
    assert len({name[2:4] for name in names}) > 10
