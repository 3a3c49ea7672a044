"""Verifying: a sound store is sound whatever its past, and each kind of damage is named with its handle."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.clock import SECONDS_PER_DAY
from mcpstated.daemon.maintenance.verify import verify
from mcpstated.daemon.testing import open_engine
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append, SetKey
from mcpstated.protocol.store import Caller

ALICE, BOB = Caller("alice", "w"), Caller("bob", "w")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store" / "state.db"


async def test_a_store_with_any_past_is_sound(path: Path) -> None:
    """Checkpoints, folds, expiries, the trash and back; while it is open and when it is closed."""
    async with open_engine(path, limits=Limits(history_changes=5)) as running:
        store = running.store
        handles = []
        for caller in (ALICE, BOB):
            for ttl_days in (None, 1, 30):
                receipt = await store.mint(caller, kind="a", document={"l": []}, ttl_days=ttl_days, title="t")
                handles.append((caller, receipt.info.handle))
        for caller, handle in handles:
            for number in range(12):
                await store.patch(caller, handle, [Append("l", "x" * 900), SetKey("", "n", number)])
            await store.save(caller, handle, document={"l": [1]}, expect_version=13, title=None)
        await store.sweep()
        await store.delete(*handles[0])
        await store.delete(*handles[3])
        await store.undelete(*handles[3])
        running.time.pass_seconds(2 * SECONDS_PER_DAY)
        await store.sweep()
        verdict = verify(path)
        assert verdict.problems == ()
        assert verdict.handles == 4
    assert verify(path).problems == ()


@pytest.mark.requirement("C23")
@pytest.mark.parametrize(
    ("sql", "where", "what"),
    [
        ("UPDATE handles SET version = 5 WHERE id = 1", "a_", "changes after version"),
        ("UPDATE handles SET size_bytes = 5 WHERE id = 1", "a_", "size_bytes"),
        ("UPDATE handles SET title = 'x' WHERE id = 1", "a_", "title"),
        ("UPDATE handles SET expires_at = 5e9 WHERE id = 1", "a_", "its end"),
        ("DELETE FROM changes WHERE handle_id = 1 AND version = 2", "a_", "changes after version"),
        ("DELETE FROM checkpoints WHERE handle_id = 1", "a_", "cannot be replayed"),
        ("UPDATE changes SET body = '{' WHERE handle_id = 1 AND version = 3", "a_", "cannot be replayed"),
        ("UPDATE checkpoints SET document = '[]' WHERE handle_id = 1", "a_", "cannot be replayed"),
        ("UPDATE holdings SET handles = 7 WHERE user = 'bob'", "counts", "holds 1"),
        ("DELETE FROM holdings", "counts", "said to hold 0"),
        ("UPDATE sqlite_sequence SET seq = 1", "counts", "only 1 were given out"),
        ("CREATE TRIGGER t AFTER UPDATE ON meta BEGIN DELETE FROM handles; END", "file", "the trigger t"),
        ("UPDATE handles SET title = CAST(x'ff' AS TEXT) WHERE id = 1", "a_", "cannot be read"),
        ("UPDATE changes SET handle_id = 99 WHERE handle_id = 2", "file", "belongs to no row"),
    ],
)
async def test_each_damage_is_named(sql: str, where: str, what: str, path: Path) -> None:
    """With the handle that it belongs to, and nothing of any state."""
    async with open_engine(path) as running:
        for caller in (ALICE, BOB):
            handle = (await running.store.mint(caller, kind="a", document={"secret": []})).info.handle
            for number in range(3):
                await running.store.patch(caller, handle, [Append("secret", number)])
    db = apsw.Connection(str(path))
    db.execute(sql)
    db.close()
    verdict = verify(path)
    assert not verdict.is_sound
    assert any(problem.where.startswith(where) and what in problem.what for problem in verdict.problems)
    assert "secret" not in str(verdict)


@pytest.mark.requirement("C23")
async def test_pages_that_are_overwritten_are_found(path: Path) -> None:
    """The file itself is read through."""
    async with open_engine(path) as running:
        for _ in range(50):
            await running.store.mint(ALICE, kind="a", document={"t": "x" * 2_000})
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 3_000] = b"\xff" * 3_000
    path.write_bytes(data)
    assert not verify(path).is_sound


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    """An empty file, another program's database, a newer schema: with the reason, and left as it was."""
    stranger, newer = tmp_path / "stranger.db", tmp_path / "newer.db"
    db = apsw.Connection(str(stranger))
    db.execute("CREATE TABLE x (y)")
    db.close()
    db = apsw.Connection(str(newer))
    db.execute("CREATE TABLE x (y)")
    db.pragma("application_id", 0x6D637073)
    db.pragma("user_version", 99)
    db.close()
    for path, reason in ((stranger, "another program"), (newer, "99")):
        before = path.read_bytes()
        with pytest.raises(StoreRefused, match=reason):
            verify(path)
        assert path.read_bytes() == before


async def test_a_store_on_a_read_only_disk_is_examined(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite wants to write beside a store that has a log; one that has none can be read as it is."""
    async with open_engine(path) as running:
        await running.store.mint(Caller("alice", "w"), kind="a", document={"n": 1})
    monkeypatch.setattr(os, "access", lambda *_arguments, **_more: False)
    assert verify(path).is_sound
    assert sorted(found.name for found in path.parent.iterdir()) == [path.name, f"{path.name}-reserve"]
