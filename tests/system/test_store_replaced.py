"""Ring 4: a store that is removed or replaced under clients that use it, which must hear of it."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest
import trio

from mcpstated.daemon.maintenance.backup import back_up
from support.command_line import CommandLine
from support.mcp_client import McpClient, daemon_pid, mcp_client

pytestmark = [pytest.mark.requirement("C18"), pytest.mark.once]


async def until_gone(pid: int) -> None:
    """Return when there is no such process."""
    while Path(f"/proc/{pid}").exists():
        await trio.sleep(0.02)


async def code_of(client: McpClient, handle: str) -> str:
    """Return what became of one append: `ok`, or the code of its error."""
    answer = await client.append(handle, "later")
    return "ok" if answer["ok"] else str(answer["error"]["code"])


async def test_a_directory_that_is_removed_is_not_made_anew_for_who_used_it(data_dir: Path) -> None:
    """An empty store would answer as if nothing had ever been there."""
    with trio.fail_after(60):
        async with mcp_client(data_dir) as client:
            handle = (await client.tool("state_save", kind="t", state={"l": []}))["handle"]
            pid = daemon_pid(data_dir)
            shutil.rmtree(data_dir)
            first = await code_of(client, handle)
            await until_gone(pid)
            assert first in ("backend_error", "outcome_unknown", "daemon_unavailable")
            assert await code_of(client, handle) == "daemon_unavailable"
            assert not data_dir.exists()
            async with mcp_client(data_dir, name="new") as new:
                assert (await new.tool("state_list"))["handles"] == []


async def test_an_older_copy_in_its_place_is_told_once_and_then_used(data_dir: Path, tmp_path: Path) -> None:
    """Versions that the client knows would stand for other contents: it must look before it goes on."""
    with trio.fail_after(60):
        async with mcp_client(data_dir) as client:
            handle = (await client.tool("state_save", kind="t", state={"l": []}))["handle"]
            copy = tmp_path / "copy.db"
            back_up(data_dir / "state.db", copy)
            assert await code_of(client, handle) == "ok"
            pid = daemon_pid(data_dir)
            data_dir.rename(tmp_path / "away")
            await until_gone(pid)
            data_dir.mkdir(mode=0o700)
            copy.rename(data_dir / "state.db")
            (data_dir / "daemon.lock").touch(mode=0o600)

            assert await code_of(client, handle) == "store_replaced"
            assert (await client.tool("state_load", handle=handle))["version"] == 1
            assert await code_of(client, handle) == "ok"


async def test_clients_that_are_connected_go_on_with_a_restored_store(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`mcpstated restore --force`: each client is told once, and nothing of theirs gets into it unseen."""
    command_line = CommandLine(capsys, "--data-dir", str(data_dir))
    with trio.fail_after(60):
        async with mcp_client(data_dir) as client, mcp_client(data_dir, name="idle") as idle:
            handle = (await client.tool("state_save", kind="t", state={"l": []}))["handle"]
            assert (await idle.tool("state_load", handle=handle))["ok"]
            backup = tmp_path / "backup.gz"
            back_up(data_dir / "state.db", backup)
            assert await code_of(client, handle) == "ok"
            restore = functools.partial(command_line, "restore", str(backup), "--yes")
            assert (await trio.to_thread.run_sync(restore)).exit_code == 1
            done = await trio.to_thread.run_sync(functools.partial(restore, "--force"))
            assert done.exit_code == 0, done.err

            for one in (client, idle):
                assert await code_of(one, handle) == "store_replaced"
                assert await code_of(one, handle) == "ok"
            state = (await client.tool("state_load", handle=handle))["state"]
            assert state == {"l": ["later", "later"]}
