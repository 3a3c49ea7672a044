"""Restoring: the backup or the old store, never a mixture, whatever happens; and the old one is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.failpoints import FAILPOINTS
from mcpstated.daemon.maintenance import restore
from mcpstated.daemon.maintenance.backup import back_up
from mcpstated.daemon.maintenance.verify import verify
from mcpstated.daemon.testing import open_engine
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller

ALICE = Caller("alice", "w")
JOB = """
import sys
from pathlib import Path
from mcpstated.daemon import failpoints
from mcpstated.daemon.maintenance import restore
failpoints.arm(sys.argv[3])
restore.prepare(Path(sys.argv[1]), Path(sys.argv[2]))
restore.exchange(Path(sys.argv[2]), now=1.7e9)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store" / "state.db"


async def two_states(path: Path, tmp_path: Path, *, leaves_log: bool = False) -> tuple[Path, str]:
    """Make a store at version 2 with a backup of it, then bring it to version 4; return backup and handle.

    Args:
        leaves_log: End as a crash does, with the last versions only in the write-ahead log.
    """
    backup = tmp_path / "backup.db.gz"
    async with open_engine(path) as running:
        handle = (await running.store.mint(ALICE, kind="a", document={"l": []})).info.handle
        await running.store.patch(ALICE, handle, [Append("l", "backed up")])
        back_up(path, backup)
        for word in ("later", "last"):
            await running.store.patch(ALICE, handle, [Append("l", word)])
        if leaves_log:
            copies = {p.name: p.read_bytes() for p in path.parent.iterdir() if not p.name.endswith("-shm")}
    if leaves_log:
        for name, data in copies.items():
            (path.parent / name).write_bytes(data)
    return backup, handle


async def document_of(path: Path, handle: str) -> object:
    """Open a store as a daemon does and return one document."""
    async with open_engine(path) as running:
        return (await running.store.load(ALICE, handle)).document["l"]


@pytest.mark.parametrize("leaves_log", [False, True], ids=["closed", "crashed"])
async def test_the_backup_is_in_place_and_the_old_store_aside(
    leaves_log: bool, path: Path, tmp_path: Path
) -> None:
    """With what only its log had."""
    backup, handle = await two_states(path, tmp_path, leaves_log=leaves_log)
    assert restore.prepare(backup, path).revision == 2
    aside = restore.exchange(path, now=1.7e9)
    assert aside is not None
    assert aside.name == "state.db.replaced-20231114T221320Z"
    assert await document_of(path, handle) == ["backed up"]
    assert await document_of(aside, handle) == ["backed up", "later", "last"]


async def test_a_restored_store_has_a_name_of_its_own(path: Path, tmp_path: Path) -> None:
    """So that a client that used the old one hears that it is another."""
    backup, _handle = await two_states(path, tmp_path)

    def name_of(store: Path) -> object:
        db = apsw.Connection(str(store))
        try:
            return db.execute("SELECT value FROM meta WHERE name = 'store'").get
        finally:
            db.close()

    before = name_of(path)
    restore.prepare(backup, path)
    restore.exchange(path, now=1.7e9)
    assert before
    assert name_of(path) not in (None, before)


@pytest.mark.once
@pytest.mark.requirement("P1")
@pytest.mark.parametrize("failpoint", [name for name in FAILPOINTS if name.startswith("restore.")])
async def test_a_restore_that_dies_is_finished_by_the_next(
    failpoint: str, path: Path, tmp_path: Path
) -> None:
    """In between, a daemon finds the old store, the new one, or refuses to start; never an empty one."""
    backup, handle = await two_states(path, tmp_path, leaves_log=True)
    command = [sys.executable, "-c", JOB, str(backup), str(path), f"{failpoint}=kill"]
    died = await trio.run_process(command, check=False)
    assert died.returncode == -9
    marker = path.with_name(path.name + ".restore")
    if marker.exists():
        with pytest.raises((StoreRefused, ExceptionGroup)) as refused:
            await document_of(path, handle)
        assert "restore" in str(getattr(refused.value, "exceptions", [refused.value])[0])
    else:
        found = await document_of(path, handle)
        assert found == (
            ["backed up"] if failpoint == "restore.after_rename" else ["backed up", "later", "last"]
        )
    restore.prepare(backup, path)
    restore.exchange(path, now=1.7e9 + 100)
    assert await document_of(path, handle) == ["backed up"]
    kept = [found for found in path.parent.iterdir() if ".replaced-" in found.name and found.suffix != "-wal"]
    assert any(verify(found).revision == 4 for found in kept if not found.name.endswith(("-wal", "-shm")))


async def test_a_damaged_store_is_kept_with_its_log(path: Path, tmp_path: Path) -> None:
    """Nobody can say what is in it, so both files stay as they are."""
    backup, handle = await two_states(path, tmp_path, leaves_log=True)
    log = path.with_name("state.db-wal").read_bytes()
    path.write_bytes(b"ruined" * 1_000)
    restore.prepare(backup, path)
    aside = restore.exchange(path, now=1.7e9)
    assert aside is not None
    assert aside.read_bytes() == b"ruined" * 1_000
    assert aside.with_name(aside.name + "-wal").read_bytes() == log
    assert await document_of(path, handle) == ["backed up"]


async def test_a_backup_that_is_not_sound_changes_nothing(path: Path, tmp_path: Path) -> None:
    """It is examined before anything is touched, and leaves no trace."""
    backup, handle = await two_states(path, tmp_path)
    bad = tmp_path / "bad.db"
    restore_source = tmp_path / "plain.db"
    back_up(path, restore_source)
    db = apsw.Connection(str(restore_source))
    db.execute("UPDATE handles SET version = 9")
    db.close()
    restore_source.rename(bad)
    for source in (bad, tmp_path / "store" / "state.db-nothing"):
        with pytest.raises((StoreRefused, OSError)):
            restore.prepare(source, path)
    assert sorted(found.name for found in path.parent.iterdir() if "restore" in found.name) == []
    assert await document_of(path, handle) == ["backed up", "later", "last"]
    assert backup.exists()


async def test_a_store_is_restored_where_none_is(path: Path, tmp_path: Path) -> None:
    """A new machine."""
    backup, handle = await two_states(path, tmp_path)
    elsewhere = tmp_path / "elsewhere" / "state.db"
    elsewhere.parent.mkdir()
    restore.prepare(backup, elsewhere)
    assert restore.exchange(elsewhere, now=1.7e9) is None
    assert await document_of(elsewhere, handle) == ["backed up"]


def test_the_command_refuses_while_clients_are_connected(tmp_path: Path) -> None:
    """And names them; with --force they go on with the restored store, which they are told of."""
    program = [sys.executable, "-m", "mcpstated.cli"]
    environ = {**os.environ, "MCPSTATED_DATA_DIR": str(tmp_path / "data")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*program, *words], env=environ, capture_output=True, text=True, timeout=90, check=False
        )

    assert run("list").returncode == 0
    backup = tmp_path / "b.db.gz"
    assert run("backup", str(backup)).returncode == 0
    shim = subprocess.Popen(
        [*program, "shim"], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert shim.stdin is not None
        assert shim.stdout is not None
        shim.stdin.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        shim.stdin.flush()
        shim.stdout.readline()
        refused = run("restore", str(backup), "--yes")
        assert refused.returncode == 1
        assert f"pid {shim.pid}" in refused.stderr
        forced = run("restore", str(backup), "--yes", "--force")
        assert forced.returncode == 0, forced.stderr
        assert "replaced-" in forced.stdout
        shim.stdin.write('{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
        shim.stdin.flush()
        assert '"id":2' in shim.stdout.readline().replace(" ", "")
    finally:
        shim.communicate(timeout=30)
        run("stop")
    idle = run("restore", str(backup), "--yes")
    assert idle.returncode == 0, idle.stderr
    assert run("verify").returncode == 0
    run("stop")
