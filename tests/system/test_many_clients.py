"""Ring 4: real shims around one real daemon."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from mcpstated.protocol.paths import Paths
from support.mcp_client import McpClient, daemon_pid, mcp_client, starting_environment


def started_daemons(data_dir: Path) -> int:
    """Return how many daemons have served a directory, from its log."""
    return Path(Paths(str(data_dir)).log).read_text().count("daemon started")


@pytest.mark.requirement("C03")
async def test_clients_with_unlike_environments_share_one_daemon_and_one_state(tmp_path: Path) -> None:
    """A terminal, a client that hands on only HOME and PATH, and one with other XDG and TMPDIR variables."""
    home = tmp_path / "home"
    home.mkdir()
    bare = {"HOME": str(home), "PATH": os.environ["PATH"]}
    full = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(tmp_path / "xdg"), "LANG": "C.UTF-8"}
    foreign = {
        **bare,
        "TMPDIR": str(tmp_path),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "XDG_STATE_HOME": "relative",
    }
    directory = home / ".local" / "share" / "mcpstated"
    if os.uname().sysname == "Darwin":
        directory = home / "Library" / "Application Support" / "mcpstated"
    with trio.fail_after(60):
        async with mcp_client(tmp_path, environ=full) as first:
            handle = (await first.tool("state_save", kind="shared", state={"from": "first"}))["handle"]
            async with (
                mcp_client(tmp_path, environ=bare) as second,
                mcp_client(tmp_path, environ=foreign) as third,
            ):
                assert (await second.tool("state_load", handle=handle))["state"] == {"from": "first"}
                assert (await third.tool("state_load", handle=handle))["state"] == {"from": "first"}

    assert started_daemons(directory) == 1
    assert not (tmp_path / "xdg").exists()


@pytest.mark.requirement("C10")
async def test_thirty_shims_at_once_share_one_daemon_and_each_gets_its_answers(data_dir: Path) -> None:
    """Clients start all their servers at login, at the same moment."""
    handles = []

    async def be_a_client(number: int) -> None:
        async with mcp_client(data_dir, name=f"client {number}") as client:
            handles.append((await client.tool("state_save", kind="crowd", state={"n": number}))["handle"])

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(be_a_client, number)

    assert len(set(handles)) == 30
    assert started_daemons(data_dir) == 1


@pytest.mark.requirement("C32", "P4")
async def test_appends_keys_and_saves_of_many_clients_all_land_though_one_is_killed(data_dir: Path) -> None:
    """Eight clients append and set keys, one saves the whole document, one is killed in the middle."""
    each = 40
    acknowledged: list[str] = []

    async def patch(client: McpClient, handle: str, name: str) -> None:
        for n in range(each):
            operations = [
                {"op": "append", "path": "l", "value": f"{name}-{n}"},
                {"op": "set_key", "path": "keys", "key": f"{name}-{n}", "value": n},
            ]
            reply = await client.tool("state_patch", handle=handle, ops=operations)
            assert reply["ok"], reply
            acknowledged.append(f"{name}-{n}")

    async def save(client: McpClient, handle: str) -> None:
        landed = 0
        while landed < 10:
            current = await client.tool("state_load", handle=handle, max_bytes=1_000_000)
            state = {**current["state"], "saves": landed + 1}
            reply = await client.tool(
                "state_save", handle=handle, state=state, expect_version=current["version"]
            )
            assert reply["ok"] or reply["error"]["code"] == "stale_write", reply
            landed += reply["ok"]

    async def be_killed(handle: str) -> None:
        async with mcp_client(data_dir) as client:
            for n in range(5):
                await client.append(handle, f"victim-{n}")
                acknowledged.append(f"victim-{n}")
            await client.shim.say(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')
            client.shim.process.kill()

    async def be_a_patcher(handle: str, name: str) -> None:
        async with mcp_client(data_dir) as client:
            await patch(client, handle, name)

    with trio.fail_after(120):
        async with mcp_client(data_dir) as saver:
            start = {"l": [], "keys": {}, "saves": 0}
            handle = (await saver.tool("state_save", kind="contended", state=start))["handle"]
            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(be_a_patcher, handle, f"c{number}")
                nursery.start_soon(be_killed, handle)
                nursery.start_soon(save, saver, handle)
            final = await saver.tool("state_load", handle=handle, max_bytes=1_000_000)

    assert sorted(final["state"]["l"]) == sorted(acknowledged)
    assert len(final["state"]["keys"]) == 8 * each
    assert final["state"]["saves"] == 10
    assert final["version"] == 1 + len(acknowledged) + 10


@pytest.mark.requirement("P1", "P2")
async def test_a_daemon_killed_again_and_again_costs_no_client_an_error(data_dir: Path) -> None:
    """SIGKILL under eight writing clients: the same shims go on, and every append is there once."""
    each = 30
    finished = trio.Event()

    async def be_a_writer(handle: str, name: str) -> None:
        async with mcp_client(data_dir) as client:
            for n in range(each):
                reply = await client.append(handle, f"{name}-{n}")
                assert reply["ok"], reply

    async def kill_the_daemon() -> None:
        for _ in range(3):
            with trio.move_on_after(0.3):
                await finished.wait()
            os.kill(daemon_pid(data_dir), signal.SIGKILL)
            await first.tool("state_list")

    with trio.fail_after(150):
        async with mcp_client(data_dir) as first:
            handle = (await first.tool("state_save", kind="killed", state={"l": []}))["handle"]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kill_the_daemon)
                async with trio.open_nursery() as writers:
                    for number in range(8):
                        writers.start_soon(be_a_writer, handle, f"c{number}")
                finished.set()
            final = await first.tool("state_load", handle=handle)

    expected = sorted(f"c{number}-{n}" for number in range(8) for n in range(each))
    assert sorted(final["state"]["l"]) == expected
    assert final["version"] == 1 + len(expected)


@pytest.mark.requirement("P2")
async def test_a_restart_under_load_fails_no_call(data_dir: Path) -> None:
    """`mcpstated restart` takes the newer installation into use while agents work."""
    each = 40

    async def be_a_writer(handle: str, name: str) -> None:
        async with mcp_client(data_dir) as client:
            for n in range(each):
                reply = await client.append(handle, f"{name}-{n}")
                assert reply["ok"], reply

    with trio.fail_after(120):
        async with mcp_client(data_dir) as first:
            handle = (await first.tool("state_save", kind="kept", state={"l": []}))["handle"]
            before = daemon_pid(data_dir)
            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(be_a_writer, handle, f"c{number}")
                await trio.run_process(
                    [sys.executable, "-m", "mcpstated.cli", "restart"],
                    env=starting_environment(data_dir),
                    capture_stdout=True,
                )
            final = await first.tool("state_load", handle=handle)

    assert daemon_pid(data_dir) != before
    assert sorted(final["state"]["l"]) == sorted(f"c{number}-{n}" for number in range(8) for n in range(each))
