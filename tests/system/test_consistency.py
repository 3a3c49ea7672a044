"""The consistency check with everything real: shims, a daemon that is killed, and the program that judges."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from mcpstated.connection import DaemonClient, open_client
from mcpstated.protocol.patches import Append
from mcpstated.protocol.paths import Paths

SELFTEST = [sys.executable, "-m", "mcpstated.cli", "selftest"]
POLL_SECONDS = 0.05


def environ_with(temporary: Path) -> dict[str, str]:
    """Return an environment whose temporary directory is the test's, to see what is left in it."""
    return {**os.environ, "TMPDIR": str(temporary), "COLUMNS": "100"}


def processes_in(directory: Path) -> list[str]:
    """Return the processes that name the directory."""
    listing = subprocess.run(["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True)
    return [line for line in listing.stdout.splitlines() if str(directory) in line]


@pytest.mark.once
@pytest.mark.requirement("P1", "P2", "P3", "P4", "C32")
def test_nothing_is_lost_or_doubled_or_out_of_order_while_daemons_are_killed(data_dir: Path) -> None:
    """The promises together, on every call of several clients, as the clients saw it."""
    command = [*SELFTEST, "--minutes", "0.2", "--json"]
    done = subprocess.run(
        command, env=environ_with(data_dir), capture_output=True, text=True, check=False, timeout=180
    )

    assert done.stderr == ""
    data = json.loads(done.stdout)["data"]
    assert (done.returncode, data["problems"], data["is_consistent"]) == (0, [], True)
    assert (data["lost"], data["doubled"]) == (0, 0)
    assert data["daemon_kills"] > 0
    assert data["handles"] > 0
    assert 0 < data["writes"] <= data["versions"]
    assert data["directory"] is None
    assert list(data_dir.iterdir()) == []
    assert processes_in(data_dir) == []


@pytest.mark.once
async def test_an_append_that_was_made_twice_is_noticed_and_everything_kept(data_dir: Path) -> None:
    """A check that has never failed proves nothing: here somebody else repeats what a client appended."""
    async with selftest(data_dir, "--minutes", "0.05", "--clients", "2") as running:
        await repeat_an_append(await appearing(data_dir, "*/daemon.lock", running))
        shown = await output_of(running)

    assert running.returncode == 1, shown
    assert "WRONG" in shown
    assert "is there more than once" in shown
    (kept,) = data_dir.iterdir()
    assert str(kept) in shown
    handles = {json.loads(line)["handle"] for line in (kept / "history.jsonl").read_text().splitlines()}
    assert handles
    assert all(handle in shown for handle in handles)
    assert processes_in(data_dir) == []


@pytest.mark.once
async def test_an_interrupted_self_test_judges_what_there_is_and_cleans_up(data_dir: Path) -> None:
    """Ctrl-C means that there has been enough work, not that its outcome is of no interest."""
    async with selftest(data_dir, "--clients", "2") as running:
        await appearing(data_dir, "*/client-1.stderr", running)
        running.send_signal(signal.SIGINT)
        shown = await output_of(running)

    assert running.returncode == 130, shown
    assert "Interrupted. So far: Nothing was lost" in shown
    assert re.search(r"^doubled +0$", shown, flags=re.MULTILINE)
    assert list(data_dir.iterdir()) == []
    assert processes_in(data_dir) == []


@asynccontextmanager
async def selftest(temporary: Path, *options: str) -> AsyncIterator[trio.Process]:
    """Run a self-test, and kill it if the block is left before its end."""
    with trio.fail_after(150):
        running = await trio.lowlevel.open_process(
            [*SELFTEST, *options],
            env=environ_with(temporary),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            yield running
        finally:
            running.kill()
            with trio.CancelScope(shield=True):
                await running.wait()
            assert running.stdout is not None
            await running.stdout.aclose()


async def output_of(running: trio.Process) -> str:
    """Return what a process prints until its end."""
    assert running.stdout is not None
    shown = b"".join([part async for part in running.stdout])
    await running.wait()
    return shown.decode()


async def appearing(directory: Path, pattern: str, running: trio.Process) -> Path:
    """Return a file once a process has made it."""
    while not (found := list(directory.glob(pattern))):
        assert running.poll() is None, await output_of(running)
        await trio.sleep(POLL_SECONDS)
    return found[0]


async def repeat_an_append(lock: Path) -> None:
    """Append to a handle of the store whose lock this is what it has already."""
    directory = str(lock.parent)
    environ = {**os.environ, "MCPSTATED_DATA_DIR": directory}
    async with open_client(Paths(directory), role="cli", environ=environ, start=True) as client:
        while not await has_repeated(client):
            await trio.sleep(POLL_SECONDS)


async def has_repeated(client: DaemonClient) -> bool:
    """Append an item of the newest handle once more; return False if there is none yet."""
    for info in (await client.list(limit=1)).handles:
        items = (await client.load(info.handle, path="items")).state
        if isinstance(items, list) and items:
            await client.patch(info.handle, [Append("items", items[0])])
            return True
    return False
