"""A disk that is full or broken: clear errors, nothing half done, and no restart to go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.backends.writing import in_transaction
from mcpstated.daemon.testing import GatedBackend, RunningEngine, open_engine
from mcpstated.protocol.errors import BackendError, McpStateError, OutcomeUnknown, StorageFull
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller, CallToken
from support.faulty_disk import Fault, FaultyDisk, disk_full, io_error, read_only


@dataclass(frozen=True)
class OnFaultyDisk:
    """An engine and the disk below it."""

    running: RunningEngine
    disk: FaultyDisk


@pytest.fixture
async def faulty(path: Path) -> AsyncIterator[OnFaultyDisk]:
    """An engine whose disk does what the test says."""
    disk = FaultyDisk(f"faulty-{path.parent.parent.name}")
    try:
        async with open_engine(path, backend=GatedBackend(path, vfs=disk.name)) as running:
            yield OnFaultyDisk(running, disk)
            disk.work()
    finally:
        disk.unregister()


@pytest.mark.requirement("P1")
@pytest.mark.parametrize(
    ("fault", "operation", "error"),
    [
        (disk_full, "write", StorageFull),
        (read_only, "write", BackendError),
        (io_error, "write", OutcomeUnknown),
        (io_error, "sync", OutcomeUnknown),
    ],
)
async def test_a_write_that_the_disk_refused_is_not_there_and_the_next_one_works(
    faulty: OnFaultyDisk, path: Path, alice: Caller, fault: Fault, operation: str, error: type[McpStateError]
) -> None:
    """P1: rolled back, the version unchanged, reads go on, and the text of the fault stays in the log.

    A disk that fails in the commit may yet have all of it after a crash, so nobody says that it has not.
    """
    store, disk = faulty.running.store, faulty.disk
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    disk.fail(fault, operation)
    for _ in range(3):
        with pytest.raises(error) as caught:
            await store.patch(alice, handle, [Append("l", "lost")])
        assert type(caught.value) is error
        assert ("before you repeat it" in str(caught.value.details)) == (error is OutcomeUnknown)
        assert "input/output" not in caught.value.message
        assert str(path) not in caught.value.message
        assert (await store.load(alice, handle)).info.version == 1
        assert (await store.list(alice)).total == 1
        with pytest.raises(error):
            await store.mint(alice, kind="a", document={})
    assert disk.faults >= 6
    disk.work()
    assert (await store.patch(alice, handle, [Append("l", "kept")])).info.version == 2
    assert (await store.mint(alice, kind="a", document={})).info.version == 1
    assert (await store.load(alice, handle)).document == {"l": ["kept"]}


@pytest.mark.requirement("P2")
async def test_a_forwarded_write_that_the_disk_refused_may_come_again(
    faulty: OnFaultyDisk, alice: Caller
) -> None:
    """P2: the ledger row was rolled back with the change."""
    store, disk = faulty.running.store, faulty.disk
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    caller = Caller("alice", "w", CallToken(b"s" * 16, 1, is_resent=True))
    disk.fail(disk_full, "write")
    with pytest.raises(StorageFull):
        await store.patch(caller, handle, [Append("l", 1)])
    disk.work()
    assert not (await store.patch(caller, handle, [Append("l", 1)])).is_replayed
    assert (await store.patch(caller, handle, [Append("l", 1)])).is_replayed
    assert (await store.load(alice, handle)).document == {"l": [1]}


@pytest.mark.requirement("P1", "P3")
async def test_what_was_acknowledged_between_faults_is_all_there_and_nothing_else(
    faulty: OnFaultyDisk, path: Path, alice: Caller
) -> None:
    """P1 and P3: eight writers while the disk comes and goes, then a restart."""
    store, disk = faulty.running.store, faulty.disk
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    acknowledged: list[list[int]] = []
    refused = 0

    async def write(writer: int) -> None:
        nonlocal refused
        for index in range(40):
            try:
                await store.patch(alice, handle, [Append("l", [writer, index])])
            except (BackendError, OutcomeUnknown):
                refused += 1
            else:
                acknowledged.append([writer, index])

    async def break_now_and_then() -> None:
        for round_number in range(20):
            disk.fail(io_error, "sync" if round_number % 2 else "write")
            while disk.faults == 0:
                await trio.lowlevel.checkpoint()
            disk.work()
            target = len(acknowledged) + 8
            while len(acknowledged) < target and len(acknowledged) + refused < 320:
                await trio.lowlevel.checkpoint()
            if len(acknowledged) + refused > 280:
                return

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for writer in range(8):
                nursery.start_soon(write, writer)
            nursery.start_soon(break_now_and_then)
    assert refused > 0
    snapshot = await store.load(alice, handle)
    assert sorted(snapshot.document["l"]) == sorted(acknowledged)  # type: ignore[arg-type, type-var]
    assert snapshot.info.version == 1 + len(acknowledged)
    async with open_engine(path) as reopened:
        assert (await reopened.store.load(alice, handle)).document == snapshot.document


async def test_a_read_that_the_disk_refuses_is_an_error_for_its_caller_only(
    faulty: OnFaultyDisk, path: Path, alice: Caller
) -> None:
    """What is in memory is served on; a cold handle is an error, and works again later."""
    store, disk = faulty.running.store, faulty.disk
    hot = (await store.mint(alice, kind="a", document={"l": [1]})).info.handle
    async with open_engine(path) as other:
        cold = (await other.store.mint(alice, kind="a", document={"l": ["x" * 50_000]})).info.handle
    disk.fail(io_error, "read")
    for _ in range(2):
        with pytest.raises(BackendError):
            await store.load(alice, cold)
        assert (await store.load(alice, hot)).document == {"l": [1]}
    disk.work()
    assert (await store.load(alice, cold)).info.version == 1


async def test_a_sweep_that_fails_is_tried_again(path: Path, alice: Caller) -> None:
    """The sweeper outlives a bad moment of the disk."""
    disk = FaultyDisk(f"faulty-sweep-{path.parent.parent.name}")
    try:
        backend = GatedBackend(path, vfs=disk.name)
        async with open_engine(path, backend=backend, sweep_seconds=0.01) as running:
            await running.store.mint(alice, kind="a", document={}, ttl_days=1e-5)
            disk.fail(disk_full, "write")
            running.time.pass_seconds(10)
            with trio.fail_after(10), running.feed.subscribe(user=None) as subscription:
                while disk.faults < 2:
                    await trio.sleep(0.01)
                disk.work()
                assert (await anext(subscription)).action == "expire"
    finally:
        disk.unregister()


@pytest.mark.requirement("P1")
def test_only_a_fault_of_the_commit_itself_leaves_the_outcome_open() -> None:
    """P1: before the commit a fault is a plain failure, and nothing of it can come back."""
    db = apsw.Connection(":memory:")

    def work() -> None:
        raise apsw.IOError("before the commit")

    with pytest.raises(apsw.IOError):
        in_transaction(db, work, step="append")
    assert not db.in_transaction
