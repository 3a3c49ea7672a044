"""Other programs that have the database open: their locks and long reads cost a while, never data."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from mcpstated.daemon.testing import open_engine
from mcpstated.protocol.errors import BackendError
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import SetKey
from mcpstated.protocol.store import Caller

WAL_LIMIT = 200_000


async def test_a_write_lock_held_by_another_program_fails_writes_for_as_long(
    path: Path, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads go on meanwhile, and the next write after it works."""
    monkeypatch.setattr("mcpstated.daemon.backends.opening.BUSY_TIMEOUT_MS", 20)
    async with open_engine(path) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"n": 0})).info.handle
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendError):
            await store.patch(alice, handle, [SetKey("", "n", 1)])
        assert (await store.load(alice, handle)).document == {"n": 0}
        assert (await store.list(alice)).total == 1
        other.close()
        assert (await store.patch(alice, handle, [SetKey("", "n", 2)])).info.version == 2


@pytest.mark.requirement("P6", "C25")
async def test_the_log_returns_to_its_limit_after_a_long_read_elsewhere(
    path: Path, alice: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    """P6: while somebody reads an old view the log has to grow; a warning says so, and it shrinks after."""
    wal = path.with_name(path.name + "-wal")
    async with open_engine(path, limits=Limits(wal_bytes=WAL_LIMIT)) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"n": 0})).info.handle
        other = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM handles").get == 1
        for index in range(60):
            await store.patch(alice, handle, [SetKey("", "n", f"{index}" * 2_000)])
        assert wal.stat().st_size > WAL_LIMIT
        await store.sweep()
        assert "write-ahead log was kept long by an open read" in caplog.text
        other.close()
        await store.sweep()
        assert wal.stat().st_size <= WAL_LIMIT
        assert (await store.patch(alice, handle, [SetKey("", "n", 1)])).info.version == 62
