"""The daemon is replaced again and again while everybody writes: nobody notices more than a pause."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from support.load import load_on
from support.mcp_client import daemon_pid, mcp_client, starting_environment
from support.shim_process import shim_process

MCPSTATED = [sys.executable, "-m", "mcpstated.cli"]
OTHER_DAEMON = str(Path(__file__).parents[1] / "support" / "ready_daemon.py")
OTHER_SHIM = (
    "import os, sys\n"
    "from mcpstated.shim.main import run_shim\n"
    f"sys.exit(run_shim(os.environ, command=[sys.executable, {OTHER_DAEMON!r}]))\n"
)
"""A shim of another installation: what it starts is not our daemon."""


async def restart(data_dir: Path) -> dict[str, object]:
    """Run `mcpstated restart`, which must succeed, and return the daemon that runs now."""
    done = await trio.run_process(
        [*MCPSTATED, "restart", "--json"],
        env=starting_environment(data_dir),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert done.returncode == 0, done
    answer: dict[str, object] = json.loads(done.stdout)["data"]["daemon"]
    return answer


@pytest.mark.once
@pytest.mark.requirement("P1", "P2", "P3")
async def test_restarts_under_load_fail_no_call_and_neither_lose_nor_double_one(data_dir: Path) -> None:
    """P2: the same shims and programs go on; versions stay dense over all the daemons."""
    pids = set()
    with trio.fail_after(120):
        async with load_on(data_dir, shims=6, programs=2, environ=starting_environment(data_dir)) as load:
            pids.add(daemon_pid(data_dir))
            for _ in range(2):
                replaced = await restart(data_dir)
                assert replaced["pid"] == daemon_pid(data_dir)
                pids.add(daemon_pid(data_dir))
                await load.everybody_has_called(3)
            os.kill(
                daemon_pid(data_dir), signal.SIGTERM
            )  # to one that it cannot talk to, `restart` says it so
            replaced = await restart(data_dir)
            assert replaced["pid"] == daemon_pid(data_dir)
            pids.add(daemon_pid(data_dir))
            await load.everybody_has_called(3)
    assert load.wrong == []
    assert len(pids) >= 4


@pytest.mark.once
@pytest.mark.requirement("P2")
async def test_no_other_installation_starts_its_daemon_while_one_is_replaced(data_dir: Path) -> None:
    """Shims that lose their daemon look for the next at once; the one that was asked for must win.

    Theirs would be of the older version, and be what the person who upgraded goes on with, or be refused by a
    store of a newer schema and fail their calls.
    """
    environ = starting_environment(data_dir)
    command = [sys.executable, "-c", OTHER_SHIM]
    ping = b'{"jsonrpc":"2.0","id":7,"method":"ping"}'
    with trio.fail_after(60):
        async with mcp_client(data_dir) as ours, trio.open_nursery() as nursery:
            await ours.tool("state_list")
            calls: list[int] = []

            async def be_another(*, task_status: trio.TaskStatus[None]) -> None:
                async with shim_process(data_dir, command=command, environ=environ) as shim:
                    task_status.started()
                    while True:
                        await shim.say(ping)
                        assert "result" in await shim.answer()
                        calls.append(1)

            for _ in range(4):
                await nursery.start(be_another)
            replaced = await restart(data_dir)
            assert (await ours.tool("state_list"))["ok"]
            nursery.cancel_scope.cancel()
    assert calls
    assert replaced["pid"] == daemon_pid(data_dir)
    assert not (data_dir / "starts").exists(), "a daemon of the other installation was started"
