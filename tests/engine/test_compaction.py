"""Compaction: space that nobody uses goes back to the disk, in small steps, at no risk."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.backends import compaction
from mcpstated.daemon.maintenance.verify import verify
from mcpstated.daemon.testing import RunningEngine, open_engine
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.store import Caller, HandleId
from support.old_store import make_old_store

AT_ONCE = Limits(trash_days=0)
"""What is deleted is gone, without a time in the trash."""
KEPT_BYTES = 200_000

KILLED = f"""
import sys, trio
from mcpstated.daemon import failpoints
from mcpstated.daemon.backends import compaction
from mcpstated.daemon.testing import Limits, open_engine
from mcpstated.protocol.store import Caller

async def main():
    compaction.KEPT_BYTES = {KEPT_BYTES}
    alice = Caller("alice", "w")
    async with open_engine(sys.argv[1], limits=Limits(trash_days=0)) as running:
        store = running.store
        handles = []
        for number in range(40):
            receipt = await store.mint(alice, kind="a", document={{"l": [number, "x" * 30_000]}})
            handles.append(receipt.info.handle)
        for handle in handles[:30]:
            await store.delete(alice, handle)
        failpoints.arm(sys.argv[2])
        await store.sweep()
        print("nothing killed it")

trio.run(main)
"""


@pytest.fixture(autouse=True)
def _keep_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "KEPT_BYTES", KEPT_BYTES)


async def fill(running: RunningEngine, caller: Caller, *, handles: int) -> list[HandleId]:
    """Store documents of some pages each."""
    minted: list[HandleId] = []

    async def mint(number: int) -> None:
        document: dict[str, object] = {"l": [number, "x" * 30_000]}
        minted.append((await running.store.mint(caller, kind="a", document=document)).info.handle)  # type: ignore[arg-type]

    async with trio.open_nursery() as nursery:
        for number in range(handles):
            nursery.start_soon(mint, number)
    return minted


async def pages_of(running: RunningEngine, *, name: str = "freelist_count") -> int:
    """Return how many bytes of the database are free, or there, as pages."""

    def look(db: apsw.Connection) -> int:
        return int(db.pragma(name)) * int(db.pragma("page_size"))

    writer = running.backend._writer
    assert writer is not None
    return int(await writer.async_run(look, writer))


@pytest.mark.requirement("P6")
async def test_what_was_deleted_goes_back_to_the_disk_and_the_rest_is_as_it_was(
    path: Path, alice: Caller
) -> None:
    """P6: the file follows what is stored, down as well as up, without a restart; little is kept."""
    async with open_engine(path, limits=AT_ONCE) as running:
        store = running.store
        handles = await fill(running, alice, handles=60)
        await store.sweep()
        before = [await store.load(alice, handle) for handle in handles]
        for handle in handles[:50]:
            await store.delete(alice, handle)
        await store.sweep()
        size_bytes = path.stat().st_size
        assert size_bytes < 10 * 34_000 + KEPT_BYTES + 200_000
        assert await pages_of(running) <= KEPT_BYTES
        await store.sweep()
        assert path.stat().st_size == size_bytes
    async with open_engine(path, limits=AT_ONCE) as running:
        for snapshot in before[50:]:
            assert await running.store.load(alice, snapshot.info.handle) == snapshot
    assert verify(path).is_sound


async def test_a_little_free_space_is_kept_for_what_is_stored_next(path: Path, alice: Caller) -> None:
    """Giving back moves pages, and that is written too: not for what folding frees and patches take again."""
    async with open_engine(path, limits=AT_ONCE) as running:
        handles = await fill(running, alice, handles=60)
        pages_bytes = 34_000
        for handle in handles[: KEPT_BYTES // pages_bytes - 1]:
            await running.store.delete(alice, handle)
        await running.store.sweep()
        freed = await pages_of(running)
        assert freed > KEPT_BYTES // 2
        await fill(running, alice, handles=2)
        assert await pages_of(running) < freed


async def test_a_store_of_the_first_schema_uses_its_free_pages_again(path: Path, alice: Caller) -> None:
    """It was made without the pages that say where pages are, and only copying all of it would add them."""
    make_old_store(path)
    async with open_engine(path, limits=AT_ONCE) as running:
        sizes = []
        for _ in range(4):
            handles = await fill(running, alice, handles=40)
            await running.store.sweep()
            sizes.append(await pages_of(running, name="page_count"))
            for handle in handles:
                await running.store.delete(alice, handle)
            await running.store.sweep()
        assert await pages_of(running) > KEPT_BYTES
        assert sizes[-1] <= sizes[1]


@pytest.mark.once
@pytest.mark.requirement("P1")
@pytest.mark.parametrize(
    "failpoint",
    [
        "compaction.after_begin=kill",
        "compaction.before_commit=kill@2",
        "compaction.after_commit=kill@2",
        "compaction.after_checkpoint=kill",
    ],
)
async def test_a_daemon_that_is_killed_while_it_gives_space_back_loses_nothing(
    path: Path, alice: Caller, failpoint: str
) -> None:
    """P1: each step is a transaction, and the next pass goes on where it stood."""
    path.parent.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), failpoint],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    async with open_engine(path, limits=AT_ONCE) as running:
        store = running.store
        await store.sweep()
        handles = (await store.list(alice)).handles
        loaded = [(await store.load(alice, info.handle)).document for info in handles]
        assert len(loaded) == 10
        assert all({"l": [number, "x" * 30_000]} in loaded for number in range(30, 40))
        assert await pages_of(running) <= KEPT_BYTES
    assert verify(path).is_sound
