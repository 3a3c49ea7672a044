"""Older versions: what is kept, what is folded away, and that the newest never suffers from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.testing import ManualTime, RunningEngine, open_engine
from mcpstated.protocol.documents import Document, dump
from mcpstated.protocol.errors import HistoryCompacted, InvalidInput
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append, SetKey
from mcpstated.protocol.store import Caller, Snapshot

DAY = 86_400.0


@dataclass(frozen=True)
class Rows:
    """What the database holds of its only handle."""

    changes: list[int]
    checkpoints: list[int]
    oldest_version: int
    history_bytes: int


def rows(path: Path) -> Rows:
    """Read the versions from outside."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        changes = [int(row[0]) for row in db.execute("SELECT version FROM changes ORDER BY version")]
        checkpoints = [int(row[0]) for row in db.execute("SELECT version FROM checkpoints ORDER BY version")]
        [(oldest, size)] = db.execute("SELECT oldest_version, history_bytes FROM handles")
        return Rows(changes, checkpoints, int(oldest), int(size))
    finally:
        db.close()


@pytest.mark.requirement("P3")
async def test_every_version_can_be_read_as_it_was(either: RunningEngine, alice: Caller) -> None:
    """P3: documents, titles, expiries, writers and times, whatever kind of change made them."""
    store, time = either.store, either.time
    seen: list[Snapshot] = []

    async def look() -> None:
        time.pass_seconds(7)
        seen.append(await store.load(alice, handle))

    document: Document = {"l": [], "pad": "p" * 3_000, "b": {"z": 1, "a": -0.0}}
    handle = (await store.mint(alice, kind="a", document=document, title="One", ttl_days=1)).info.handle
    await look()
    for index in range(30):
        await store.patch(
            Caller("alice", f"w{index}"), handle, [Append("l", "x" * 400), SetKey("", "n", index)]
        )
        await look()
    await store.touch(alice, handle, ttl_days=9)
    await look()
    current = (await store.load(alice, handle)).document
    await store.save(alice, handle, document={**current, "n": "diff"}, expect_version=32, title="Two")
    await look()
    await store.save(alice, handle, document={"whole": 1}, expect_version=33, ttl_days=None, title=None)
    await look()
    await store.save(alice, handle, document={"whole": 1}, expect_version=34, title="Three")
    await look()
    for snapshot in seen:
        old = await store.load(alice, handle, version=snapshot.info.version)
        assert old.info == snapshot.info
        assert dump(old.document) == dump(snapshot.document)
    for version in (0, 36):
        with pytest.raises(InvalidInput) as caught:
            await store.load(alice, handle, version=version)
        assert caught.value.details == {"field": "version"}


@pytest.mark.requirement("P8")
async def test_a_checkpoint_comes_when_the_changes_outweigh_the_document(
    path: Path, engine: RunningEngine, alice: Caller
) -> None:
    """P8: replay stays short, and the bytes written stay near the bytes changed."""
    store = engine.store
    small = (await store.mint(alice, kind="a", document={"n": 0})).info.handle
    for index in range(200):
        await store.patch(alice, small, [SetKey("", "n", index + 1)])
    kept = rows(path)
    assert kept.changes == list(range(1, 202))
    record = len('{"ops":[{"op":"set_key","path":"","key":"n","value":100}]}')
    assert len(kept.checkpoints) == 1 + 200 * record // 4096
    assert kept.history_bytes < 201 * (record + 2) + 100


async def test_a_save_is_stored_as_its_difference_when_that_is_smaller(
    path: Path, engine: RunningEngine, alice: Caller
) -> None:
    """History stays legible and small, and a different document is a new checkpoint."""
    store = engine.store
    document: Document = {f"key{index}": "v" * 50 for index in range(100)}
    handle = (await store.mint(alice, kind="a", document=document)).info.handle
    await store.save(alice, handle, document={**document, "key7": "changed"}, expect_version=1)
    assert rows(path).checkpoints == [1]
    assert rows(path).history_bytes < 8_000
    await store.save(alice, handle, document={"other": ["v" * 50] * 100}, expect_version=2)
    assert rows(path).checkpoints == [1, 3]


SHORT = Limits(history_changes=20)


@pytest.mark.requirement("P6")
async def test_history_beyond_the_number_of_changes_is_folded(path: Path, alice: Caller) -> None:
    """P6: the newest ones stay readable, older ones say what is left, and a restart sees the same."""
    time = ManualTime()
    async with open_engine(path, limits=SHORT, time=time) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        for index in range(24):
            await store.patch(alice, handle, [Append("l", index)])
        await store.sweep()
        assert rows(path).oldest_version == 1, "within the slack nothing is written"
        for index in range(24, 40):
            await store.patch(alice, handle, [Append("l", index)])
        await store.sweep()
    kept = rows(path)
    assert kept.oldest_version == 21
    assert kept.changes == list(range(22, 42))
    assert kept.checkpoints == [21]
    async with open_engine(path, limits=SHORT, time=time) as running:
        store = running.store
        assert (await store.load(alice, handle)).document == {"l": list(range(40))}
        for version in range(21, 42):
            old = await store.load(alice, handle, version=version)
            assert old.document == {"l": list(range(version - 1))}
            assert old.info.version == version
        for version in (1, 20):
            with pytest.raises(HistoryCompacted) as caught:
                await store.load(alice, handle, version=version)
            assert caught.value.details == {"requested": version, "oldest": 21}


@pytest.mark.requirement("P6")
async def test_history_beyond_its_bytes_is_folded(path: Path, alice: Caller) -> None:
    """P6: few large changes weigh as much as many small ones."""
    async with open_engine(path, limits=Limits(history_bytes=50_000)) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"v": "", "pad": "p" * 20_000})).info.handle
        for index in range(30):
            await store.patch(alice, handle, [SetKey("", "v", f"{index:05}" * 1_000)])
        await store.sweep()
        kept = rows(path)
        assert 22 <= kept.oldest_version < 31
        assert kept.history_bytes <= 50_000
        assert kept.changes == list(range(kept.oldest_version + 1, 32))
        assert (await store.load(alice, handle, version=31)).document["v"] == "00029" * 1_000


@pytest.mark.requirement("P6")
async def test_history_beyond_its_age_is_folded_also_of_quiet_handles(path: Path, alice: Caller) -> None:
    """P6: a month and the slack later the log of a quiet handle is its document alone."""
    async with open_engine(path) as running:
        store, time = running.store, running.time
        handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        for index in range(10):
            await store.patch(alice, handle, [Append("l", index)])
        time.pass_seconds(31 * DAY)
        await store.patch(alice, handle, [Append("l", "late")])
        await store.sweep()
        assert rows(path).oldest_version == 1
        time.pass_seconds(7 * DAY)
        await store.sweep()
        kept = rows(path)
        assert (kept.oldest_version, kept.changes, kept.checkpoints) == (11, [12], [11])
        time.pass_seconds(60 * DAY)
        await store.sweep()
        kept = rows(path)
        assert (kept.oldest_version, kept.changes, kept.checkpoints) == (12, [], [12])
        assert (await store.load(alice, handle)).info.version == 12
        assert (await store.patch(alice, handle, [Append("l", "later")])).info.version == 13
        assert (await store.load(alice, handle, version=12)).document == {"l": [*range(10), "late"]}


@pytest.mark.requirement("P6")
async def test_folding_goes_on_while_the_handle_is_written(path: Path, alice: Caller) -> None:
    """P6: sweeps between any two writes change nothing that a reader of the newest sees."""
    async with open_engine(path, limits=Limits(history_changes=5, cache_bytes=0)) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        for index in range(60):
            receipt = await store.patch(alice, handle, [Append("l", index)])
            await store.sweep()
            assert receipt.info.version == index + 2
            assert (await store.load(alice, handle)).document == {"l": list(range(index + 1))}
        assert len(rows(path).changes) <= 7


async def test_a_long_history_is_removed_in_small_steps(path: Path, alice: Caller) -> None:
    """One step is one short transaction; the rest comes with the next, in the same pass."""
    async with open_engine(path, limits=Limits(history_changes=10, trash_days=0)) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"n": 0})).info.handle
        async with trio.open_nursery() as nursery:
            for index in range(1_200):
                nursery.start_soon(store.patch, alice, handle, [SetKey("", "n", index + 1)])
        await store.sweep()
        kept = rows(path)
        assert kept.oldest_version == 1_191
        assert kept.changes == list(range(1_192, 1_202))
        await store.delete(alice, handle)
        await store.sweep()
    db = apsw.Connection(str(path))
    assert db.execute("SELECT count(*) FROM changes").get == 0
    assert db.execute("SELECT count(*) FROM checkpoints").get == 0
    assert db.execute("SELECT seq FROM sqlite_sequence").get == 1_202
    db.close()


async def test_a_revision_is_never_used_again(path: Path, alice: Caller) -> None:
    """Also when the newest changes are gone from the log: a follower would take them for known ones."""
    async with open_engine(path) as running:
        handle = (await running.store.mint(alice, kind="a", document={})).info.handle
        await running.store.delete(alice, handle)
        await running.store.sweep()
    async with open_engine(path) as running:
        assert (await running.store.status()).revision == 2
        assert (await running.store.mint(alice, kind="a", document={})).info.revision == 3
