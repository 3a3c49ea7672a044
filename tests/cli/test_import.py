"""`mcpstated import` against a real daemon: exports, and databases of mcpstate as they lie on disks."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from mcpstated.cli.exit_codes import ExitCode
from mcpstated.connection import open_client
from mcpstated.daemon.maintenance.mcpstate import kind_of
from support.command_line import CommandLine, Outcome
from support.daemons import daemon_in

HEADER = {"format": "mcpstated-export", "version": 1}


@pytest.fixture
def command_line(capsys: pytest.CaptureFixture[str], data_dir: Path) -> CommandLine:
    """Runs command lines on the test's own directory."""
    return CommandLine(capsys, "--data-dir", str(data_dir))


async def run(command_line: CommandLine, *words: str) -> Outcome:
    """Run a command line in a thread, for it has a trio of its own."""
    with trio.fail_after(60):
        return await trio.to_thread.run_sync(functools.partial(command_line, *words))


def a_line(handle: str, **changed: object) -> dict[str, Any]:
    """Return one handle of an export."""
    line = {"user": "local", "space": "agent", "handle": handle, "kind": "k", "version": 3, "state": {"n": 1}}
    times = {"created_at": 1.7e9, "updated_at": 1.7e9, "expires_at": None, "ttl_days": None}
    return {**line, **times, "last_writer": "w", **changed}


def written(path: Path, *lines: object) -> str:
    """Write an export and return its path."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


async def test_an_export_is_taken_over_once(
    command_line: CommandLine, data_dir: Path, tmp_path: Path
) -> None:
    """A second run changes nothing; what differs here stays, unless --replace says otherwise."""
    file = written(tmp_path / "export.jsonl", HEADER, a_line("k_one"), a_line("k_two", user="bob"))
    async with daemon_in(data_dir) as daemon:
        first = await run(command_line, "import", file, "--json")
        assert first.data["imported"] == 2
        again = await run(command_line, "import", file, "--json")
        assert (again.data["imported"], again.data["unchanged"]) == (0, 2)
        paths = daemon.settings.paths
        async with open_client(paths, role="library", environ={"MCPSTATED_USER": "bob"}, start=False) as bob:
            assert (await bob.load("k_two")).info.version == 3
            await bob.save("k_two", {"n": 2}, expect_version=3)
            kept = await run(command_line, "import", file, "--json")
            assert kept.data["kept"] == ["k_two"]
            assert (await bob.load("k_two")).state == {"n": 2}
            for_people = await run(command_line, "import", file)
            assert "k_two" in for_people.out
            replaced = await run(command_line, "import", file, "--replace", "--json")
            assert replaced.data["replaced"] == 1
            assert (await bob.load("k_two")).info.version == 5
        given = await run(command_line, "import", file, "--as-user", "carol", "--json")
        assert given.data["imported"] == 2


async def test_lines_that_do_not_fit_are_named_and_the_others_taken(
    command_line: CommandLine, data_dir: Path, tmp_path: Path
) -> None:
    """One bad line costs itself; the exit code says that there was one."""
    path = tmp_path / "export.jsonl.gz"
    lines = [HEADER, a_line("k_one"), {"user": "local"}, a_line("k_two", expires_at=1.0), a_line("k_three")]
    text = "".join(json.dumps(line) + "\n" for line in lines) + "{broken\n\n"
    path.write_bytes(gzip.compress(text.encode()))
    async with daemon_in(data_dir):
        outcome = await run(command_line, "import", str(path), "--json")
    assert outcome.exit_code == ExitCode.FAILED
    data = json.loads(outcome.out)["data"]
    assert data["imported"] == 2
    assert [refused["where"] for refused in data["refused"]] == ["line 3", "k_two", "line 6"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{}\n", b"\x1f\x8bnonsense", b"\x00" * 100, json.dumps({**HEADER, "version": 2}).encode()],
    ids=["empty", "no header", "broken gzip", "zeros", "newer"],
)
async def test_a_file_that_is_no_export_is_refused(
    content: bytes, command_line: CommandLine, data_dir: Path, tmp_path: Path
) -> None:
    """Before anything is imported, and with what to do instead."""
    path = tmp_path / "file"
    path.write_bytes(content)
    async with daemon_in(data_dir):
        outcome = await run(command_line, "import", str(path), "--json")
    assert outcome.exit_code == ExitCode.USAGE
    assert outcome.envelope["errors"][0]["code"] == "invalid_input"


def a_database_of_mcpstate(path: Path) -> None:
    """Make one as mcpstate has it, in use: with a write-ahead log that is not folded back."""
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "WAL")
    db.execute(
        "CREATE TABLE handles (user TEXT, handle TEXT, kind TEXT, state TEXT, version INTEGER,"
        " created_at REAL, updated_at REAL, expires_at REAL, last_writer TEXT, PRIMARY KEY (user, handle))"
    )
    rows = [
        ("local", "research_k3v9x2mq", "research", '{"a": 1.0, "b": [1]}', 4, 1.7e9, 1.7e9, None, "me"),
        ("local", "Odd Kind_1", "Odd Kind", "{}", 1, 1.7e9, 1.7e9, 4e9, None),
        ("bob", "k_bob", "k", '{"big": 123456789012345678901234}', 2, 1.7e9, 1.7e9, None, "bob"),
        ("local", "k_gone", "k", "{}", 1, 1.7e9, 1.7e9, 1.7e9 + 1, "me"),
        ("local", "k_list", "k", "[1]", 1, 1.7e9, 1.7e9, None, "me"),
    ]
    db.executemany("INSERT INTO handles VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    db.close()


async def test_a_store_of_mcpstate_is_taken_over(
    command_line: CommandLine, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its default place or another one; names, versions and times stay, and the file is not touched."""
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".mcpstate" / "state.db"
    path.parent.mkdir()
    a_database_of_mcpstate(path)
    before = path.read_bytes()
    async with daemon_in(data_dir) as daemon:
        outcome = await run(command_line, "import", "--from-mcpstate", "--json")
        data = json.loads(outcome.out)["data"]
        assert data["imported"] == 3
        assert [refused["where"] for refused in data["refused"]] == ["k_gone", "k_list"]
        paths = daemon.settings.paths
        async with open_client(paths, role="library", environ={}, start=False) as client:
            found = await client.load("research_k3v9x2mq")
            assert found.state == {"a": 1.0, "b": [1]}
            assert (found.info.version, found.info.created_at, found.info.last_writer) == (4, 1.7e9, "me")
            odd = (await client.load("Odd Kind_1")).info
            assert (odd.kind, odd.expires_at) == ("odd-kind", 4e9)
        again = await run(command_line, "import", "--from-mcpstate", str(path), "--json")
        assert json.loads(again.out)["data"]["unchanged"] == 3
    assert path.read_bytes() == before


async def test_nothing_at_the_place_of_mcpstate_is_a_clear_error(
    command_line: CommandLine, data_dir: Path, tmp_path: Path
) -> None:
    """A path that is wrong, a file that is another program's, and both sources at once."""
    stranger = tmp_path / "stranger.db"
    apsw.Connection(str(stranger)).close()
    stranger.write_bytes(b"not a database" * 100)
    async with daemon_in(data_dir):
        missing = await run(command_line, "import", "--from-mcpstate", str(tmp_path / "none.db"))
        assert (missing.exit_code, "no database of mcpstate" in missing.err) == (ExitCode.USAGE, True)
        strange = await run(command_line, "import", "--from-mcpstate", str(stranger))
        assert strange.exit_code == ExitCode.USAGE
        assert (await run(command_line, "import")).exit_code == ExitCode.USAGE
        assert (await run(command_line, "import", "x", "--from-mcpstate", "y")).exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("research", "research"),
        ("My Notes", "my-notes"),
        ("7up", "k-7up"),
        ("--", "state"),
        ("", "state"),
        (None, "state"),
        ("é", "state"),
        ("a" * 40, "a" * 32),
        ("9" * 40, "k-" + "9" * 30),
    ],
)
def test_a_kind_of_mcpstate_becomes_one_of_ours(theirs: str | None, ours: str) -> None:
    """It takes any text there."""
    assert kind_of(theirs) == ours
