"""`mcpstated trash` against a real daemon: the person's way back from a deletion."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import trio

from mcpstated.cli.exit_codes import ExitCode
from mcpstated.connection import open_client
from support.command_line import CommandLine, Outcome
from support.daemons import daemon_in


@pytest.fixture
def command_line(capsys: pytest.CaptureFixture[str], data_dir: Path) -> CommandLine:
    """Runs command lines on the test's own directory."""
    return CommandLine(capsys, "--data-dir", str(data_dir))


async def run(command_line: CommandLine, *words: str) -> Outcome:
    """Run a command line in a thread, for it has a trio of its own."""
    with trio.fail_after(60):
        return await trio.to_thread.run_sync(functools.partial(command_line, *words))


async def test_a_deleted_handle_is_listed_and_brought_back(command_line: CommandLine, data_dir: Path) -> None:
    """From the message of the deletion to the state, by the commands that the messages name."""
    async with (
        daemon_in(data_dir) as daemon,
        open_client(daemon.settings.paths, role="library", environ={}, start=False) as client,
    ):
        handle = (await client.mint("research", {"n": 1}, title="Heat pumps")).info.handle
        deleted = await run(command_line, "delete", handle, "--yes")
        assert f"mcpstated trash restore {handle}" in deleted.out
        listed = await run(command_line, "trash", "list", "--json")
        (entry,) = listed.data["handles"]
        assert (entry["handle"], entry["title"], entry["version"]) == (handle, "Heat pumps", 2)
        assert entry["deleted_at"] < entry["trash_until"]
        for_people = await run(command_line, "trash", "list")
        assert "Heat pumps" in for_people.out
        assert "in 7 d" in for_people.out
        restored = await run(command_line, "trash", "restore", handle, "--json")
        assert restored.data["version"] == 3
        assert (await client.load(handle)).state == {"n": 1}
        assert (await run(command_line, "trash", "list")).out == "The trash is empty.\n"
        again = await run(command_line, "trash", "restore", handle)
        assert again.exit_code == ExitCode.FAILED
        assert handle in again.err


async def test_emptying_asks_first_and_removes_for_good(command_line: CommandLine, data_dir: Path) -> None:
    """Without a terminal it needs --yes, as every command that cannot be undone."""
    async with (
        daemon_in(data_dir) as daemon,
        open_client(daemon.settings.paths, role="library", environ={}, start=False) as client,
    ):
        handles = [(await client.mint("k", {})).info.handle for _ in range(3)]
        for handle in handles:
            await client.delete(handle)
        assert (await run(command_line, "trash", "empty")).exit_code == ExitCode.USAGE
        assert (await run(command_line, "trash", "empty", handles[0], "--yes", "--json")).data == {
            "removed": 1
        }
        assert (await run(command_line, "trash", "empty", "--yes", "--json")).data == {"removed": 2}
        assert await client.trash() == ()
        assert (await run(command_line, "trash", "restore", handles[1])).exit_code == ExitCode.FAILED
