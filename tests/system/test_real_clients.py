"""Ring 4: the official SDK's clients against a real shim and a real daemon, in both protocol eras."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mcp
import pytest
import trio
from mcp.client.stdio import StdioServerParameters, stdio_client

from support.mcp_client import daemon_pid, starting_environment

SHIM = ["-m", "mcpstated.cli", "shim"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_lists_and_calls_every_tool(data_dir: Path, mode: str) -> None:
    """What one client saves the next one resumes, whichever era each of them speaks."""
    server = StdioServerParameters(command=sys.executable, args=SHIM, env=starting_environment(data_dir))
    with trio.fail_after(60):
        async with mcp.Client(stdio_client(server), mode=mode) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == {
                "state_save",
                "state_load",
                "state_list",
                "state_patch",
                "state_touch",
                "state_delete",
            }
            saved = await client.call_tool("state_save", {"kind": "sdk", "state": {"l": []}})
            assert saved.structured_content is not None
            handle = saved.structured_content["handle"]
            calls = [
                ("state_patch", {"handle": handle, "ops": [{"op": "append", "path": "l", "value": 1}]}),
                ("state_load", {"handle": handle}),
                ("state_list", {}),
                ("state_touch", {"handle": handle, "ttl_days": 1}),
                ("state_delete", {"handle": handle}),
            ]
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                assert not result.is_error, result
                assert result.structured_content is not None
                assert result.structured_content["ok"] is True
            gone = await client.call_tool("state_load", {"handle": handle})
            assert gone.is_error


@pytest.mark.requirement("C17")
def test_lines_from_printf_are_all_answered_and_the_shim_leaves(data_dir: Path, tmp_path: Path) -> None:
    """A script that pipes its requests in and reads a file afterwards is a client too."""
    environ = starting_environment(data_dir)
    lines = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "printf", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        *(
            {
                "id": 2 + n,
                "method": "tools/call",
                "params": {"name": "state_save", "arguments": {"kind": "script", "state": {"n": n}}},
            }
            for n in range(5)
        ),
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    out = tmp_path / "out"
    with out.open("wb") as file:
        done = subprocess.run(
            [sys.executable, *SHIM],
            check=False,
            input=text.encode(),
            stdout=file,
            stderr=subprocess.PIPE,
            env=environ,
            timeout=60,
        )

    answers = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert sorted(answer["id"] for answer in answers) == [1, 2, 3, 4, 5, 6]
    assert all("result" in answer for answer in answers)


@pytest.mark.requirement("C19")
def test_a_pipeline_ends_with_the_shim_although_the_daemon_lives_on(data_dir: Path) -> None:
    """The daemon holds none of the descriptors that the shim was given, so `| cat` ends."""
    environ = starting_environment(data_dir)
    message = (
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        '"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}'
    )
    pipeline = f"printf '%s\\n' '{message}' | '{sys.executable}' -m mcpstated.cli shim 2>&1 | cat"
    done = subprocess.run(
        ["/bin/sh", "-c", pipeline], env=environ, capture_output=True, timeout=60, check=True
    )

    assert json.loads(done.stdout.splitlines()[-1])["result"]["serverInfo"]["name"] == "mcpstated"
    pid = daemon_pid(data_dir)
    if Path("/proc").is_dir():
        standard = [str(Path(f"/proc/{pid}/fd/{fd}").readlink()) for fd in range(3)]
        assert standard == ["/dev/null", str(data_dir / "daemon.log"), str(data_dir / "daemon.log")]
        status = Path(f"/proc/{pid}/status").read_text()
        assert "SigBlk:\t0000000000000000" in status
