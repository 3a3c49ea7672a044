"""What was acknowledged is on disk."""

from __future__ import annotations

import subprocess
from pathlib import Path

import apsw
import pytest
import trio
import trio.testing

from mcpstated.daemon.testing import GatedBackend, ManualTime, RunningEngine, open_engine
from mcpstated.protocol.documents import Document, dump
from mcpstated.protocol.patches import Append, SetKey
from mcpstated.protocol.store import Caller
from support.faulty_disk import FaultyDisk


@pytest.mark.requirement("P1")
async def test_everything_comes_back_after_the_store_was_closed(path: Path, alice: Caller) -> None:
    """P1: metadata, document and versions are as they were."""
    time = ManualTime()
    document: Document = {"l": [1, 1.0, -0.0, 10**40], "é": {"z": 1, "a": 2}}
    async with open_engine(path, time=time) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document=document, title="T", ttl_days=3)).info.handle
        for index in range(20):
            await store.patch(alice, handle, [Append("l", index)])
        before = await store.load(alice, handle)
    async with open_engine(path, time=time) as running:
        after = await running.store.load(alice, handle)
        assert after.info == before.info
        assert dump(after.document) == dump(before.document)
        assert (await running.store.patch(alice, handle, [Append("l", "x")])).info.version == 22
        assert (await running.store.status()).revision == 22


def crash_copy(path: Path, target: Path) -> Path:
    """Copy the files as they are at this moment, from another process: what a crash would leave behind."""
    target.mkdir()
    files = [path, path.with_name(path.name + "-wal")]
    subprocess.run(["cp", *map(str, files), str(target)], check=True)
    return target / path.name


@pytest.mark.requirement("P1")
async def test_an_acknowledged_write_is_in_the_files_at_that_moment(
    path: Path, tmp_path: Path, alice: Caller
) -> None:
    """P1: a crash right after the answer loses nothing, so nothing is answered before COMMIT."""
    async with open_engine(path) as running:
        handle = (await running.store.mint(alice, kind="a", document={"l": []})).info.handle
        for index in range(5):
            await running.store.patch(alice, handle, [Append("l", index)])
            copy = await trio.to_thread.run_sync(crash_copy, path, tmp_path / f"crash-{index}")
            async with open_engine(copy) as recovered:
                snapshot = await recovered.store.load(alice, handle)
                assert snapshot.document == {"l": list(range(index + 1))}


@pytest.mark.requirement("P1")
async def test_a_batch_that_is_held_is_neither_answered_nor_read(
    engine: RunningEngine, alice: Caller
) -> None:
    """P1 and P3: no answer and no read shows what could still be lost."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"n": 0})).info.handle
    engine.backend.hold()
    answered = trio.Event()

    async def write() -> None:
        await store.patch(alice, handle, [SetKey("", "n", 1)])
        answered.set()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await engine.backend.wait_for_batch()
            assert (await store.load(alice, handle)).document == {"n": 0}
            assert (await store.list(alice)).handles[0].version == 1
            assert not answered.is_set()
            engine.backend.release()
        assert (await store.load(alice, handle)).document == {"n": 1}


@pytest.mark.requirement("C26")
async def test_the_pragmas_are_those_that_durability_rests_on(path: Path, engine: RunningEngine) -> None:
    """What durable means is what happens: read back from the connection that writes."""

    def read(db: apsw.Connection) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "fullfsync", "foreign_keys", "journal_size_limit")
        return {name: db.pragma(name) for name in names}

    writer = engine.backend._writer
    assert writer is not None
    assert await writer.async_run(read, writer) == {
        "journal_mode": "wal",
        "synchronous": 2,
        "fullfsync": 1,
        "foreign_keys": 1,
        "journal_size_limit": 64 * 1024 * 1024,
    }


@pytest.mark.requirement("C26")
async def test_an_acknowledged_write_costs_one_flush_of_the_log(path: Path, alice: Caller) -> None:
    """C26: one write is one flush before its answer, and a crowd that waits together shares one."""
    disk = FaultyDisk(f"counted-{path.parent.parent.name}")
    try:
        async with open_engine(path, backend=GatedBackend(path, vfs=disk.name)) as running:
            handle = (await running.store.mint(alice, kind="a", document={"l": []})).info.handle
            before = disk.syncs["-wal"]
            for number in range(10):
                await running.store.patch(alice, handle, [Append("l", number)])
            assert disk.syncs["-wal"] == before + 10
            running.backend.hold()
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(running.store.patch, alice, handle, [Append("l", number)])
                await trio.testing.wait_all_tasks_blocked()
                running.backend.release()
            assert disk.syncs["-wal"] <= before + 12  # what came first, and the rest
    finally:
        disk.unregister()


async def test_stopping_flushes_what_is_queued_and_leaves_one_file(path: Path, alice: Caller) -> None:
    """Cancellation is the shutdown: every write that was taken in is stored, the log is folded in."""
    with trio.fail_after(20):
        async with trio.open_nursery() as callers:
            async with open_engine(path) as running:
                handle = (await running.store.mint(alice, kind="a", document={"l": []})).info.handle
                running.backend.hold()
                for index in range(10):
                    callers.start_soon(running.store.patch, alice, handle, [Append("l", index)])
                await trio.testing.wait_all_tasks_blocked()
                running.backend.release()
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}-reserve"}
    async with open_engine(path) as running:
        assert (await running.store.load(alice, handle)).info.version == 11


async def test_opening_and_closing_leaves_no_thread_and_no_descriptor(
    path: Path, alice: Caller, no_leaks: None
) -> None:
    """Fifty times, with reads and writes in between."""
    handle = None
    for _ in range(50):
        async with open_engine(path) as running:
            if handle is None:
                handle = (await running.store.mint(alice, kind="a", document={"l": []})).info.handle
            await running.store.patch(alice, handle, [Append("l", 1)])
    async with open_engine(path) as running:
        assert (await running.store.load(alice, handle)).info.version == 51
