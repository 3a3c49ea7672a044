"""backup, restore, verify, export, import, paths and restart as a person uses them, mistakes included."""

from __future__ import annotations

import functools
import gzip
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.cli.exit_codes import ExitCode
from mcpstated.connection import DaemonClient, open_client
from mcpstated.daemon.lock import FileLock
from support.command_line import CommandLine, Outcome
from support.daemons import RunningDaemon, daemon_in

FLIPPED = bytearray(gzip.compress(os.urandom(9_000)))
FLIPPED[2_000:2_100] = bytes(100)
"""A compressed file with a damage in the middle."""


class Person:
    """Types commands about one store, whose daemon runs."""

    def __init__(self, command_line: CommandLine, daemon: RunningDaemon, client: DaemonClient) -> None:
        self._command_line = command_line
        self.daemon = daemon
        self.client = client
        self.database = Path(daemon.settings.database)

    async def types(self, *words: str) -> Outcome:
        """Run a command line in a thread, for it has a trio of its own."""
        with trio.fail_after(60):
            return await trio.to_thread.run_sync(functools.partial(self._command_line, *words))


@pytest.fixture
async def person(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Person]:
    """Somebody with a running daemon and one handle, `n` in it."""
    async with (
        daemon_in(data_dir) as daemon,
        open_client(daemon.settings.paths, role="library", environ={}, start=False) as client,
    ):
        yield Person(CommandLine(capsys, "--data-dir", str(data_dir)), daemon, client)


@pytest.mark.parametrize("name", ["all.jsonl", "all.jsonl.gz"])
async def test_an_export_into_a_file_is_there_whole_and_alone(
    person: Person, tmp_path: Path, name: str
) -> None:
    """The name decides about compression, and nothing is left beside it."""
    handle = (await person.client.mint("t", {"n": 1})).info.handle
    target = tmp_path / name
    outcome = await person.types("export", "-o", str(target))
    assert outcome.exit_code == 0, outcome.err
    text = gzip.decompress(target.read_bytes()) if name.endswith(".gz") else target.read_bytes()
    header, line = (json.loads(part) for part in text.splitlines())
    assert header["format"] == "mcpstated-export"
    assert line["handle"] == handle
    assert sorted(found.name for found in tmp_path.glob("all*")) == [name]
    assert target.stat().st_mode & 0o777 == 0o600


async def test_an_export_names_every_handle_that_is_not_there(person: Person, tmp_path: Path) -> None:
    """Whoever asks for three and gets one must hear of the other two."""
    handle = (await person.client.mint("t", {})).info.handle
    outcome = await person.types("export", handle, "no_one", "no_two", "-o", str(tmp_path / "some.jsonl"))
    assert outcome.exit_code == ExitCode.FAILED
    assert "no_one" in outcome.err
    assert "no_two" in outcome.err
    assert handle not in outcome.err


async def test_a_copied_database_is_restored_with_what_is_in_its_log(person: Person, tmp_path: Path) -> None:
    """People copy the files of a store; the newest of it is in the log."""
    handle = (await person.client.mint("t", {"n": 1})).info.handle
    copied = tmp_path / "copied.db"
    shutil.copy(person.database, copied)
    shutil.copy(f"{person.database}-wal", f"{copied}-wal")
    outcome = await person.types("verify", str(copied), "--json")
    assert outcome.data["handles"] == 1
    elsewhere = tmp_path / "elsewhere"
    restored = await person.types("restore", str(copied), "--yes", "--data-dir", str(elsewhere))
    assert restored.exit_code == 0, restored.err
    db = apsw.Connection(str(elsewhere / "state.db"))
    assert db.execute("SELECT handle FROM handles").get == handle
    db.close()


async def test_a_store_is_neither_restored_from_itself_nor_backed_up_over_itself(person: Person) -> None:
    """Both would destroy what they are meant to keep."""
    await person.client.mint("t", {})
    backup = await person.types("backup", str(person.database), "--replace")
    log = await person.types("backup", f"{person.database}-wal", "--replace")
    itself = await person.types("restore", str(person.database), "--yes", "--force")
    assert [backup.exit_code, log.exit_code, itself.exit_code] == [ExitCode.USAGE] * 3
    assert (await person.client.list()).total == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"x" * 5_000, "not a database"),
        (gzip.compress(b"x" * 9_000)[:40], "ends early"),
        (FLIPPED, "ends early"),
    ],
)
async def test_what_is_no_backup_is_refused_under_its_own_name(
    person: Person, tmp_path: Path, content: bytes, reason: str
) -> None:
    """A person looks for the file that he named, and a script reads why."""
    wrong = tmp_path / "wrong.gz"
    wrong.write_bytes(content)
    restored = await person.types("restore", str(wrong), "--yes", "--force")
    assert restored.exit_code != 0
    assert f"{wrong}" in restored.err.replace("\n", "")
    assert reason in restored.err.replace("\n", " ")
    assert ".part" not in restored.err
    verified = await person.types("verify", str(wrong), "--json")
    assert verified.exit_code == ExitCode.FAILED
    assert verified.envelope["data"]["is_sound"] is False
    assert reason in verified.envelope["data"]["problems"][0]["what"]


async def test_settings_that_no_daemon_starts_with_cost_no_running_one(person: Person) -> None:
    """A typo in a file must not take the store away from every client."""
    config = Path(person.daemon.settings.paths.config)
    config.write_text("[limits]\nmax_depth = 0\n")
    restarted = await person.types("restart")
    assert restarted.exit_code == ExitCode.USAGE
    assert "max_depth" in restarted.err
    assert str(config) in restarted.err.replace("\n", "")
    assert not person.daemon.ended.is_set()
    paths = await person.types("paths", "--json")
    assert str(config) in [entry["path"] for entry in paths.data["paths"]]
    assert "max_depth" in paths.data["notes"][0]


async def test_paths_shows_stores_that_were_kept(person: Person) -> None:
    """They take space until somebody removes them."""
    kept = person.database.with_name("state.db.replaced-20261203T000000Z")
    kept.touch()
    paths = await person.types("paths", "--json")
    shown = {entry["path"]: entry["exists"] for entry in paths.data["paths"]}
    assert shown[str(kept)]
    assert shown[str(person.database.parent / "backups")] is False


async def test_an_import_of_many_handles_names_what_it_refused(person: Person, tmp_path: Path) -> None:
    """They are sent side by side; what becomes of one is no other's business."""
    handles = [(await person.client.mint("t", {"n": n})).info.handle for n in range(60)]
    target = tmp_path / "all.jsonl"
    assert (await person.types("export", "-o", str(target))).exit_code == 0
    lines = target.read_text().splitlines()
    lines[5] = lines[5].replace('"kind":"t"', '"kind":"No Good"')
    target.write_text("\n".join(lines) + "\n")
    elsewhere = str(tmp_path / "elsewhere")
    outcome = await person.types("import", str(target), "--data-dir", elsewhere, "--json")
    assert outcome.exit_code == ExitCode.FAILED
    assert outcome.envelope["data"]["imported"] == len(handles) - 1
    assert len(outcome.envelope["data"]["refused"]) == 1
    await person.types("stop", "--data-dir", elsewhere)


async def test_an_export_writes_over_neither_the_store_nor_what_lies_beside_it(
    person: Person, tmp_path: Path
) -> None:
    """A slip of the hand in the target must not cost the states that were to be saved."""
    handle = (await person.client.mint("t", {})).info.handle
    over = await person.types("export", "-o", str(person.database))
    assert over.exit_code == ExitCode.USAGE
    mine = tmp_path / "all.jsonl.part"
    mine.write_text("mine")
    assert (await person.types("export", "-o", str(tmp_path / "all.jsonl"))).exit_code == 0
    assert mine.read_text() == "mine"
    assert (await person.client.load(handle)).info.version == 1


async def test_two_restores_of_one_store_do_not_meet(person: Person, tmp_path: Path) -> None:
    """One would write into the file that the other has examined and is about to put in place."""
    await person.client.mint("t", {})
    backup = tmp_path / "backup.gz"
    assert (await person.types("backup", str(backup))).exit_code == 0
    with FileLock(f"{person.database}-restore.lock") as other:
        assert other.try_acquire()
        outcome = await person.types("restore", str(backup), "--yes", "--force")
    assert outcome.exit_code == ExitCode.FAILED
    assert "Another restore" in outcome.err


async def test_a_database_that_another_daemon_serves_is_not_exchanged(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two data directories may name one database; whoever serves it holds the lock beside it."""
    await person.client.mint("t", {})
    backup = tmp_path / "backup.gz"
    assert (await person.types("backup", str(backup))).exit_code == 0
    monkeypatch.setenv("MCPSTATED_BACKEND", f"sqlite:///{person.database}")
    elsewhere = str(tmp_path / "elsewhere")
    outcome = await person.types("restore", str(backup), "--yes", "--data-dir", elsewhere)
    assert outcome.exit_code == ExitCode.FAILED
    assert (await person.client.list()).total == 1
    assert list(person.database.parent.glob("*replaced*")) == []
