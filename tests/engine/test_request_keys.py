"""Request keys: an agent that repeats a write on its own gets the first answer again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.ledger import KEPT_SECONDS
from mcpstated.daemon.testing import open_engine
from mcpstated.protocol.errors import InvalidInput, StaleWrite
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append, SetKey
from mcpstated.protocol.request_keys import request_key
from mcpstated.protocol.store import Caller


def asking(caller: Caller, key: str, *arguments: object) -> Caller:
    """Return the caller with a request key for these arguments."""
    return replace(caller, request=request_key(key, "test", {"arguments": list(arguments)}, Limits()))


@pytest.mark.requirement("P2")
async def test_a_write_that_is_repeated_under_its_key_is_applied_once(path: Path, alice: Caller) -> None:
    """Whatever happened since, and across restarts: each kind of write."""
    async with open_engine(path) as running:
        store = running.store
        minted = await store.mint(asking(alice, "mint"), kind="a", document={"l": []})
        handle = minted.info.handle
        patched = await store.patch(asking(alice, "patch"), handle, [Append("l", 1)])
        saved = await store.save(asking(alice, "save"), handle, document={"l": [2]}, expect_version=2)
        touched = await store.touch(asking(alice, "touch"), handle, ttl_days=3)
        await store.patch(alice, handle, [Append("l", 3)])
    async with open_engine(path) as running:
        store = running.store
        again = [
            await store.mint(asking(alice, "mint"), kind="a", document={"l": []}),
            await store.patch(asking(alice, "patch"), handle, [Append("l", 1)]),
            await store.save(asking(alice, "save"), handle, document={"l": [2]}, expect_version=2),
            await store.touch(asking(alice, "touch"), handle, ttl_days=3),
        ]
        first = [minted, patched, saved, touched]
        assert [replace(receipt, is_replayed=False) for receipt in again] == first
        assert (await store.load(alice, handle)).document == {"l": [2, 3]}
        deleted = await store.delete(asking(alice, "delete"), handle)
        repeated = await store.delete(asking(alice, "delete"), handle)
        assert replace(repeated, is_replayed=False) == deleted


@pytest.mark.requirement("P2")
async def test_a_call_without_effect_keeps_its_answer_too(path: Path, alice: Caller) -> None:
    """Repeated after somebody else's change it would have an effect, which nobody asked for."""
    async with open_engine(path) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"n": 1})).info.handle
        first = await store.patch(asking(alice, "k"), handle, [SetKey("", "n", 1)])
        assert not first.is_changed
        await store.patch(alice, handle, [SetKey("", "n", 2)])
        again = await store.patch(asking(alice, "k"), handle, [SetKey("", "n", 1)])
        assert replace(again, is_replayed=False) == first
        assert (await store.load(alice, handle)).document == {"n": 2}


async def test_a_key_with_other_arguments_is_refused(path: Path, alice: Caller, bob: Caller) -> None:
    """Nothing is done and the field is named; another user's keys are another's."""
    async with open_engine(path) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        await store.patch(asking(alice, "k", 1), handle, [Append("l", 1)])
        with pytest.raises(InvalidInput) as refused:
            await store.patch(asking(alice, "k", 2), handle, [Append("l", 2)])
        assert refused.value.details["field"] == "request_key"
        assert (await store.load(alice, handle)).document == {"l": [1]}
        assert (await store.mint(asking(bob, "k", 3), kind="a", document={})).info.version == 1


async def test_a_call_that_failed_leaves_its_key_free(path: Path, alice: Caller) -> None:
    """Nothing was done, so there is no answer to keep: the call may be repaired under its key."""
    async with open_engine(path) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={})).info.handle
        with pytest.raises(StaleWrite):
            await store.save(asking(alice, "k", 7), handle, document={"n": 1}, expect_version=7)
        saved = await store.save(asking(alice, "k", 1), handle, document={"n": 1}, expect_version=1)
        assert saved.info.version == 2


@pytest.mark.requirement("P2", "P4")
async def test_repeats_at_the_same_time_are_applied_once(path: Path, alice: Caller) -> None:
    """An impatient agent sends the second before the first is answered; one of them cancelled or not."""
    async with open_engine(path) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        versions = []

        async def patch() -> None:
            versions.append((await store.patch(asking(alice, "k"), handle, [Append("l", 1)])).info.version)

        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as impatient:
                nursery.start_soon(patch)
                impatient.cancel()
            for _ in range(9):
                nursery.start_soon(patch)
        assert versions == [2] * 10
        assert (await store.load(alice, handle)).document == {"l": [1]}


@pytest.mark.requirement("P6")
async def test_a_key_is_kept_for_a_day_and_then_forgotten(path: Path, alice: Caller) -> None:
    """After a day it is free again, and its row goes with the next sweep."""
    async with open_engine(path) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        await store.patch(asking(alice, "k", 1), handle, [Append("l", 1)])
        await store.patch(asking(alice, "other"), handle, [Append("l", 2)])
        running.time.pass_seconds(KEPT_SECONDS - 1)
        assert (await store.patch(asking(alice, "k", 1), handle, [Append("l", 1)])).is_replayed
        running.time.pass_seconds(2)
        await store.patch(asking(alice, "k", 9), handle, [Append("l", 9)])
        assert (await store.load(alice, handle)).document == {"l": [1, 2, 9]}
        await store.sweep()
    db = apsw.Connection(str(path))
    assert db.execute("SELECT request_key FROM request_keys").fetchall() == [("k",)]
    db.close()


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", 7, None, "\x00"])
def test_a_key_is_a_short_line_of_text(key: object) -> None:
    """One rule, which the refusal tells."""
    with pytest.raises(InvalidInput) as refused:
        request_key(key, "test", {}, Limits())
    assert refused.value.details["field"] == "request_key"
