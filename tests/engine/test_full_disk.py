"""A full disk: nothing is half stored, reading and deleting go on, and room is used once there is some."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.testing import GatedBackend, RunningEngine, open_engine
from mcpstated.protocol.errors import HandleNotFound, StorageFull
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller, HandleId
from support.small_disk import SmallDisk

DISK_BYTES = 2 * 1024 * 1024
LIMITS = Limits(reserve_bytes=256 * 1024)


@dataclass(frozen=True)
class OnSmallDisk:
    """An engine and the disk below it."""

    running: RunningEngine
    disk: SmallDisk


@pytest.fixture
def disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    """A disk of 2 MiB around the database."""
    path.parent.mkdir(mode=0o700)
    return SmallDisk(path.parent, size_bytes=DISK_BYTES, monkeypatch=monkeypatch)


@pytest.fixture
async def small(path: Path, disk: SmallDisk) -> AsyncIterator[OnSmallDisk]:
    """An engine on such a disk."""
    async with open_engine(path, backend=GatedBackend(path, limits=LIMITS, vfs=disk.name)) as running:
        yield OnSmallDisk(running, disk)


async def fill(running: RunningEngine, caller: Caller, *, size_bytes: int = 20_000) -> list[HandleId]:
    """Store documents until the disk is full, and return their handles."""
    handles: list[HandleId] = []
    while True:
        try:
            receipt = await running.store.mint(caller, kind="a", document={"l": ["x" * size_bytes]})
        except StorageFull:
            return handles
        handles.append(receipt.info.handle)


@pytest.mark.requirement("C22", "P1")
async def test_on_a_full_disk_nothing_changes_and_everything_can_be_read(
    small: OnSmallDisk, path: Path, alice: Caller
) -> None:
    """C22: a clear storage_full, an unchanged version, and reads from disk as well as from memory."""
    store = small.running.store
    handles = await fill(small.running, alice)
    assert len(handles) > 20
    for _ in range(3):
        with pytest.raises(StorageFull) as caught:
            await store.patch(alice, handles[0], [Append("l", "y" * 20_000)])
        assert "nothing was stored" in caught.value.message
        assert str(path) not in caught.value.message
    assert (await store.list(alice, limit=1)).total == len(handles)
    async with open_engine(path, limits=Limits(cache_bytes=0, reserve_bytes=0)) as reopened:
        for handle in handles:
            assert (await reopened.store.load(alice, handle)).info.version == 1


@pytest.mark.requirement("C22")
async def test_everything_can_be_deleted_from_a_full_disk_and_the_room_used_again(
    small: OnSmallDisk, alice: Caller
) -> None:
    """C22: a delete moves to the trash, which frees nothing; emptying the trash does, and writing goes on.

    Each delete writes to the log, so this works only if the log finds room again and again.
    """
    store = small.running.store
    handles = await fill(small.running, alice)
    for handle in handles[1:]:
        await store.delete(alice, handle)
    assert (await store.list(alice)).total == 1
    with pytest.raises(StorageFull):
        await store.mint(alice, kind="a", document={"l": ["x" * 300_000]})
    assert await store.empty_trash(alice) == len(handles) - 1
    assert (await store.patch(alice, handles[0], [Append("l", 1)])).info.version == 2
    assert len(await fill(small.running, alice)) > len(handles) // 2


@pytest.mark.requirement("C22")
async def test_many_small_states_can_be_deleted_from_a_full_disk(small: OnSmallDisk, alice: Caller) -> None:
    """C22: the reserve must last for more deletes than fit into it."""
    handles = await fill(small.running, alice, size_bytes=3_500)
    assert len(handles) > 200
    for handle in handles:
        await small.running.store.delete(alice, handle)
    assert await small.running.store.empty_trash(alice) == len(handles)
    assert len(await fill(small.running, alice, size_bytes=3_500)) > 200


@pytest.mark.requirement("C22")
async def test_a_delete_that_shares_a_batch_with_a_refused_write_is_stored(
    small: OnSmallDisk, alice: Caller
) -> None:
    """C22: who is committed together shares a fate, but not for want of space; in order, too."""
    running = small.running
    first, second, third = (await fill(running, alice))[:3]
    refused = 0

    async def write_in_vain(handle: HandleId) -> None:
        nonlocal refused
        with pytest.raises(StorageFull):
            await running.store.patch(alice, handle, [Append("l", "y" * 100_000)])
        refused += 1

    async with trio.open_nursery() as nursery:
        with trio.fail_after(30):
            running.backend.hold()
            nursery.start_soon(write_in_vain, third)
            await running.backend.wait_for_batch()  # what comes now makes up the next batch
            nursery.start_soon(write_in_vain, first)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(running.store.delete, alice, first)
            nursery.start_soon(running.store.delete, alice, second)
            await trio.testing.wait_all_tasks_blocked()
            running.backend.release()
    assert refused == 2
    for handle in (first, second):
        with pytest.raises(HandleNotFound):
            await running.store.load(alice, handle)


@pytest.mark.requirement("C22")
async def test_writing_goes_on_by_itself_once_the_disk_has_space(small: OnSmallDisk, alice: Caller) -> None:
    """C22: no restart, and the reserve is set aside again before anything is stored."""
    running, disk = small.running, small.disk
    handles = await fill(running, alice)
    disk.size_bytes -= disk.free_bytes  # somebody else takes the rest
    for handle in handles[5:]:
        await running.store.delete(alice, handle)
    reserve = disk.directory / "state.db-reserve"
    assert reserve.stat().st_size < LIMITS.reserve_bytes, "the test did not get as far as the reserve"
    disk.size_bytes *= 2
    assert (await running.store.patch(alice, handles[0], [Append("l", 1)])).info.version == 2
    assert reserve.stat().st_size == LIMITS.reserve_bytes


@pytest.mark.requirement("C22")
async def test_a_store_on_a_full_disk_can_be_opened_read_and_cleared_up(
    path: Path, disk: SmallDisk, alice: Caller
) -> None:
    """C22: the log and its index need space to begin with, which the reserve has."""
    async with open_engine(path, backend=GatedBackend(path, limits=LIMITS, vfs=disk.name)) as running:
        handles = await fill(running, alice)
    (path.parent / "other").write_bytes(b"x" * disk.free_bytes)
    async with open_engine(path, backend=GatedBackend(path, limits=LIMITS, vfs=disk.name)) as running:
        for handle in handles:
            assert (await running.store.load(alice, handle)).info.version == 1
        with pytest.raises(StorageFull):
            await running.store.patch(alice, handles[0], [Append("l", "x" * 20_000)])
        await running.store.delete(alice, handles[1])
        assert await running.store.empty_trash(alice) == 1


@pytest.mark.requirement("C22")
async def test_a_first_start_on_a_full_disk_leaves_nothing_half_made(path: Path, disk: SmallDisk) -> None:
    """C22: the reason says what to do, and what was begun does not take up the last of the space."""
    disk.size_bytes = 40_000
    with pytest.RaisesGroup(pytest.RaisesExc(StoreRefused, match="the disk is full")):
        async with open_engine(path, backend=GatedBackend(path, vfs=disk.name)):
            raise AssertionError("it was opened")
    assert list(path.parent.iterdir()) == []
    disk.size_bytes = DISK_BYTES
    async with open_engine(path, backend=GatedBackend(path, limits=LIMITS, vfs=disk.name)) as running:
        assert (await running.store.status()).handles == 0


@pytest.mark.requirement("P1")
async def test_a_write_that_was_stored_is_not_called_off_for_a_look_at_the_disk(
    path: Path, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1: whoever is told that nothing was stored does it again."""

    def fail(_directory: str) -> int:
        raise OSError(errno.EIO, "Input/output error")

    async with open_engine(path) as running:
        monkeypatch.setattr("mcpstated.daemon.backends.room.free_bytes", fail)
        handle = (await running.store.mint(alice, kind="a", document={"n": 1})).info.handle
        assert (await running.store.load(alice, handle)).document == {"n": 1}
