"""`mcpstated restore` around a daemon: what it puts in place is what is served next."""

from __future__ import annotations

import stat
from pathlib import Path

import apsw
import pytest

from mcpstated.daemon.backends.schema import SCHEMA_VERSION
from support.command_line import CommandLine
from support.schemas import recorded


@pytest.mark.requirement("C27")
def test_a_backup_of_an_older_version_is_restored_where_there_is_no_store_yet(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new machine with the newest version and the old machine's backup: nothing has to be there before."""
    backup = tmp_path / "old.db"
    store = recorded(1)
    store.make(backup)
    known = next(known for known in store.answers["handles"] if known["expires_at"] is None)
    monkeypatch.setenv("MCPSTATED_USER", known["user"])
    fresh = data_dir / "fresh"
    run = CommandLine(capsys, "--data-dir", str(fresh))
    try:
        restored = run("restore", "--yes", "--json", str(backup)).data
        assert (restored["revision"], restored["replaced"]) == (store.answers["revision"], None)
        assert stat.S_IMODE(fresh.stat().st_mode) == 0o700
        assert run("show", known["handle"], "--json").data["version"] == known["version"]
    finally:
        run("stop")
    db = apsw.Connection(str(fresh / "state.db"))
    assert db.pragma("user_version") == SCHEMA_VERSION
    db.close()
