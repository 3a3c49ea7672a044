"""A save that lost is told enough to merge, and not more than a model can read."""

from __future__ import annotations

from typing import Any

import pytest

from mcpstated.daemon.conflicts import CHANGES_BUDGET_BYTES, STATE_BUDGET_BYTES
from mcpstated.daemon.testing import RunningEngine
from mcpstated.protocol.documents import Document, size_of
from mcpstated.protocol.errors import HandleNotFound, StaleWrite
from mcpstated.protocol.patches import Append, SetKey
from mcpstated.protocol.store import Caller, HandleId


async def conflict(engine: RunningEngine, caller: Caller, handle: str, expected: int) -> StaleWrite:
    """Return the error of a save that expects a version that is not the newest."""
    with pytest.raises(StaleWrite) as caught:
        await engine.store.save(caller, handle, document={"mine": True}, expect_version=expected)
    assert caught.value.details["handle"] == handle
    assert caught.value.details["expected_version"] == expected
    return caught.value


def current_of(error: StaleWrite) -> dict[str, Any]:
    """Return what the error says of the newest version."""
    current = error.details["current"]
    assert isinstance(current, dict)
    return current


@pytest.mark.requirement("C14", "P4")
async def test_a_lost_save_gets_the_same_answer_each_time_and_never_recreates(
    either: RunningEngine, alice: Caller, bob: Caller
) -> None:
    """C14: A and B load v1, A saves, B saves expecting 1 twice; A deletes, and B gets not found."""
    store = either.store
    other = Caller("alice", bob.writer)
    handle = (await store.mint(alice, kind="a", document={"n": 1})).info.handle
    await store.save(alice, handle, document={"n": 2}, expect_version=1)
    first = await conflict(either, other, handle, 1)
    second = await conflict(either, other, handle, 1)
    assert (first.message, first.details) == (second.message, second.details)
    assert current_of(first) == {
        "version": 2,
        "last_writer": alice.writer,
        "updated_at": "2023-11-14T22:13:20.000Z",
        "changes": [
            {
                "version": 2,
                "writer": alice.writer,
                "action": "save",
                "note": "replaced the whole state",
            }
        ],
        "state": {"n": 2},
    }
    assert "expect_version 2" in first.message
    await store.delete(alice, handle)
    with pytest.raises(HandleNotFound):
        await store.save(other, handle, document={"n": 3}, expect_version=1)
    assert (await store.list(alice)).total == 0


@pytest.mark.requirement("C14")
@pytest.mark.parametrize("expected", [0, 2, 99])
async def test_a_version_that_does_not_exist_is_stale_too(
    engine: RunningEngine, alice: Caller, expected: int
) -> None:
    """C14: expecting 0 or 99 is a mistake, not a way to overwrite."""
    handle = (await engine.store.mint(alice, kind="a", document={"n": 1})).info.handle
    error = await conflict(engine, alice, handle, expected)
    assert current_of(error)["version"] == 1
    assert current_of(error)["state"] == {"n": 1}
    assert ("changes" in current_of(error)) == (expected == 0)
    assert ("There is no version" in error.message) == (expected > 1)


async def big_handle(engine: RunningEngine, caller: Caller) -> HandleId:
    """Mint a document that is too large to be shown in a conflict."""
    document: Document = {"l": [], "pad": "x" * STATE_BUDGET_BYTES}
    return (await engine.store.mint(caller, kind="a", document=document)).info.handle


@pytest.mark.requirement("P4")
async def test_what_changed_since_is_told_as_operations(either: RunningEngine, alice: Caller) -> None:
    """P4: with a large document the operations are all that a model needs to merge."""
    store = either.store
    handle = await big_handle(either, alice)
    await store.patch(Caller("alice", "one"), handle, [Append("l", "a"), SetKey("", "n", 1)])
    await store.touch(Caller("alice", "two"), handle, ttl_days=3)
    document = {**(await store.load(alice, handle)).document, "m": 2}
    await store.save(Caller("alice", "three"), handle, document=document, expect_version=3)
    current = current_of(await conflict(either, alice, handle, 1))
    assert "state" not in current
    assert current["changes"] == [
        {
            "version": 2,
            "writer": "one",
            "action": "patch",
            "operations": [
                {"op": "append", "path": "l", "value": "a"},
                {"op": "set_key", "path": "", "key": "n", "value": 1},
            ],
        },
        {"version": 3, "writer": "two", "action": "touch"},
        {
            "version": 4,
            "writer": "three",
            "action": "save",
            "operations": [{"op": "set_key", "path": "", "key": "m", "value": 2}],
        },
    ]
    assert [
        change["version"] for change in current_of(await conflict(either, alice, handle, 3))["changes"]
    ] == [4]


@pytest.mark.requirement("C28")
async def test_a_conflict_is_bounded_whatever_happened(engine: RunningEngine, alice: Caller) -> None:
    """C28: a long or heavy history is cut and the cut is told."""
    store = engine.store
    handle = await big_handle(engine, alice)
    await store.patch(alice, handle, [Append("l", "y" * CHANGES_BUDGET_BYTES)])
    for index in range(300):
        await store.patch(alice, handle, [Append("l", [index, "z" * 200])])
    error = await conflict(engine, alice, handle, 1)
    current = current_of(error)
    assert size_of(current["changes"]) <= CHANGES_BUDGET_BYTES + len(current["changes"]) + 2
    assert current["changes"][0] == {
        "version": 2,
        "writer": alice.writer,
        "action": "patch",
        "note": "too long to show here",
    }
    versions = [change["version"] for change in current["changes"]]
    assert versions == list(range(2, 2 + len(versions)))
    assert current["changes_omitted"] == 301 - len(versions)
    assert size_of(error.to_payload()) < 12_000  # type: ignore[arg-type]
    assert "Load the newest state" in error.message
