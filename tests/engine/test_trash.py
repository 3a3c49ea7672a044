"""The trash: a deleted handle can be brought back for some days, and costs a bounded amount meanwhile."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.clock import SECONDS_PER_DAY
from mcpstated.daemon.testing import RunningEngine, open_engine
from mcpstated.protocol.errors import HandleNotFound, InvalidInput, QuotaExceeded
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append, SetKey
from mcpstated.protocol.store import Caller, CallToken, Receipt


def rows_left(path: Path) -> tuple[int, int, int]:
    """Return how many rows the closed store has of handles, changes and checkpoints."""
    db = apsw.Connection(str(path))
    try:
        return (
            db.execute("SELECT count(*) FROM handles").get,
            db.execute("SELECT count(*) FROM changes").get,
            db.execute("SELECT count(*) FROM checkpoints").get,
        )
    finally:
        db.close()


async def a_deleted_handle(running: RunningEngine, caller: Caller, **properties: object) -> Receipt:
    """Mint, patch and delete one handle; return the receipt of the deletion."""
    store = running.store
    handle = (await store.mint(caller, kind="a", document={"l": []}, **properties)).info.handle  # type: ignore[arg-type]
    await store.patch(caller, handle, [Append("l", 1)])
    return await store.delete(caller, handle)


@pytest.mark.requirement("P1")
async def test_a_deleted_handle_comes_back_with_its_state_and_history(path: Path, alice: Caller) -> None:
    """Across a restart too; it goes on with the next version, so nobody mistakes it for the old one."""
    async with open_engine(path) as running:
        deleted = await a_deleted_handle(running, alice, title="Mine")
        handle = deleted.info.handle
        assert deleted.trash_until == running.time.wall + 7 * SECONDS_PER_DAY
        with pytest.raises(HandleNotFound):
            await running.store.load(alice, handle)
        assert (await running.store.list(alice)).total == 0
    async with open_engine(path) as running:
        store = running.store
        await store.sweep()
        (trashed,) = await store.trash(alice)
        assert (trashed.info.handle, trashed.info.title, trashed.info.version) == (handle, "Mine", 3)
        restored = await store.undelete(alice, handle)
        assert restored.info.version == 4
        assert await store.trash(alice) == ()
        assert (await store.list(alice)).total == 1
        assert (await store.load(alice, handle)).document == {"l": [1]}
        assert (await store.load(alice, handle, version=1)).document == {"l": []}
        await store.patch(alice, handle, [Append("l", 2)])
    async with open_engine(path) as running:
        assert (await running.store.load(alice, handle)).document == {"l": [1, 2]}
        assert (await running.store.load(alice, handle, version=4)).document == {"l": [1]}


async def test_after_its_days_a_deleted_handle_is_gone(path: Path, alice: Caller) -> None:
    """Not a moment earlier, and then without a trace."""
    async with open_engine(path) as running:
        store = running.store
        handle = (await a_deleted_handle(running, alice)).info.handle
        running.time.pass_seconds(7 * SECONDS_PER_DAY - 1)
        await store.sweep()
        assert len(await store.trash(alice)) == 1
        running.time.pass_seconds(2)
        assert await store.trash(alice) == ()
        with pytest.raises(HandleNotFound):
            await store.undelete(alice, handle)
        await store.sweep()
    assert rows_left(path) == (0, 0, 0)


async def test_without_a_trash_a_deletion_is_for_good(path: Path, alice: Caller) -> None:
    """The setting 0 deletes at once."""
    async with open_engine(path, limits=Limits(trash_days=0)) as running:
        deleted = await a_deleted_handle(running, alice)
        assert deleted.trash_until is None
        with pytest.raises(HandleNotFound):
            await running.store.undelete(alice, deleted.info.handle)
        await running.store.sweep()
    assert rows_left(path) == (0, 0, 0)


async def test_emptying_the_trash_frees_the_rows_at_once(path: Path, alice: Caller, bob: Caller) -> None:
    """One handle or all of them, of this user only; a handle that is not there is named."""
    async with open_engine(path) as running:
        store = running.store
        first, second = [(await a_deleted_handle(running, alice)).info.handle for _ in range(2)]
        kept = (await a_deleted_handle(running, bob)).info.handle
        with pytest.raises(HandleNotFound):
            await store.empty_trash(alice, kept)
        assert await store.empty_trash(alice, first) == 1
        assert [trashed.info.handle for trashed in await store.trash(alice)] == [second]
        assert await store.empty_trash(alice) == 1
        assert await store.empty_trash(alice) == 0
        assert [trashed.info.handle for trashed in await store.trash(bob)] == [kept]
    assert rows_left(path)[0] == 1


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("limits", [Limits(trash_handles=3), Limits(trash_bytes=700)], ids=["count", "bytes"])
async def test_a_trash_that_is_too_large_loses_its_oldest(
    limits: Limits, path: Path, alice: Caller, bob: Caller
) -> None:
    """An agent that mints and deletes all day must not fill the disk; another user's trash is another's."""
    async with open_engine(path, limits=limits) as running:
        store = running.store
        handles = []
        for _ in range(6):
            handle = (await store.mint(alice, kind="a", document={"t": "x" * 60})).info.handle
            running.time.pass_seconds(1)
            await store.delete(alice, handle)
            handles.append(handle)
        others = (await a_deleted_handle(running, bob)).info.handle
        await store.sweep()
        assert [trashed.info.handle for trashed in await store.trash(alice)] == handles[:-4:-1]
        assert [trashed.info.handle for trashed in await store.trash(bob)] == [others]
    assert rows_left(path)[0] == 4


async def test_a_restored_handle_lives_as_long_as_it_was_meant_to(path: Path, alice: Caller) -> None:
    """It may have expired in the trash; to come back and be gone at once would help nobody."""
    async with open_engine(path) as running:
        handle = (await a_deleted_handle(running, alice, ttl_days=1)).info.handle
        running.time.pass_seconds(3 * SECONDS_PER_DAY)
        restored = await running.store.undelete(alice, handle)
        assert restored.info.expires_at == running.time.wall + SECONDS_PER_DAY
    async with open_engine(path) as running:
        assert (await running.store.load(alice, handle)).info.expires_at == restored.info.expires_at


async def test_a_full_user_brings_nothing_back(path: Path, alice: Caller) -> None:
    """A restored handle counts like any other, at once and after a restart."""
    limits = Limits(max_handles_per_user=1)
    async with open_engine(path, limits=limits) as running:
        store = running.store
        handle = (await a_deleted_handle(running, alice)).info.handle
        other = (await store.mint(alice, kind="a", document={})).info.handle
        with pytest.raises(QuotaExceeded):
            await store.undelete(alice, handle)
        await store.delete(alice, other)
        await store.undelete(alice, handle)
        with pytest.raises(QuotaExceeded):
            await store.mint(alice, kind="a", document={})
    async with open_engine(path, limits=limits) as running:
        with pytest.raises(QuotaExceeded):
            await running.store.mint(alice, kind="a", document={})


@pytest.mark.requirement("P2", "P3")
async def test_of_many_restores_at_once_one_brings_it_back(path: Path, alice: Caller) -> None:
    """The others hear that it is not in the trash any more; the version rises by one."""
    async with open_engine(path) as running:
        store = running.store
        handle = (await a_deleted_handle(running, alice)).info.handle
        outcomes: list[str] = []

        async def restore() -> None:
            try:
                outcomes.append(str((await store.undelete(alice, handle)).info.version))
            except HandleNotFound:
                outcomes.append("not there")

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(restore)
        assert sorted(outcomes) == ["4"] + ["not there"] * 7
        assert (await store.load(alice, handle)).info.version == 4


@pytest.mark.requirement("P2")
async def test_a_restore_that_is_resent_gets_its_first_answer(path: Path, alice: Caller) -> None:
    """As every other write."""
    async with open_engine(path) as running:
        handle = (await a_deleted_handle(running, alice)).info.handle
        once = Caller(alice.user, alice.writer, CallToken(b"s" * 16, 1))
        first = await running.store.undelete(once, handle)
        again = Caller(alice.user, alice.writer, CallToken(b"s" * 16, 1, is_resent=True))
        assert (await running.store.undelete(again, handle)).info == first.info


@pytest.mark.requirement("P5")
async def test_the_trash_of_another_is_out_of_reach(
    engine: RunningEngine, alice: Caller, bob: Caller
) -> None:
    """The same answer as for a handle that never was."""
    handle = (await a_deleted_handle(engine, alice)).info.handle
    assert await engine.store.trash(bob) == ()
    with pytest.raises(HandleNotFound):
        await engine.store.undelete(bob, handle)
    with pytest.raises(InvalidInput):
        await engine.store.undelete(alice, "")


async def test_histories_in_the_trash_are_folded_too(path: Path, alice: Caller) -> None:
    """Old changes of deleted handles must not keep the sweeper from those of live ones."""
    limits = Limits(history_days=1, trash_days=30)
    async with open_engine(path, limits=limits) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"n": 0})).info.handle
        for index in range(5):
            await store.patch(alice, handle, [SetKey("", "n", index + 1)])
        await store.delete(alice, handle)
        running.time.pass_seconds(3 * SECONDS_PER_DAY)
        await store.sweep()
        assert (await store.undelete(alice, handle)).info.version == 8
        assert (await store.load(alice, handle)).document == {"n": 5}
    assert rows_left(path) == (1, 1, 1)
