"""Stopping a daemon that cannot be reached, because it is leaving already or not there at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from mcpstated.cli import retire as retiring
from mcpstated.cli.gone import is_alive, wait_gone
from mcpstated.cli.retire import retire
from mcpstated.daemon.lock import FileLock
from mcpstated.protocol.errors import DaemonUnavailable
from mcpstated.protocol.paths import Paths

FLUSHING_DAEMON = """
import os, sys
from mcpstated.daemon.lock import FileLock
lock = FileLock(sys.argv[1])
assert lock.try_acquire()
lock.note(f"pid={os.getpid()} version=1\\n")
print("locked", flush=True)
sys.stdin.read()
"""


def flushing_daemon(paths: Paths) -> subprocess.Popen[str]:
    """Start what holds the lock and does not listen, until its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", FLUSHING_DAEMON, paths.lock],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


@pytest.mark.requirement("P1")
async def test_a_daemon_that_still_flushes_is_waited_for(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has closed its socket, but whoever copies the database after `stop` must find all of it."""
    paths = Paths(str(data_dir))
    with flushing_daemon(paths) as daemon:

        async def wait_and_let_it_end(pid: int, *, timeout_seconds: float) -> bool:
            assert pid == daemon.pid
            assert is_alive(pid)
            assert daemon.stdin is not None
            daemon.stdin.close()
            return await wait_gone(pid, timeout_seconds=timeout_seconds)

        monkeypatch.setattr(retiring, "wait_gone", wait_and_let_it_end)
        monkeypatch.setattr(retiring, "_LOOK_SECONDS", 20)
        with trio.fail_after(20):
            assert await retire(paths, environ={}, reason="stopping") == daemon.pid
        assert await wait_gone(daemon.pid, timeout_seconds=0.5)


async def test_a_daemon_that_never_ends_its_flush_is_reported(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stop` must neither wait for ever nor say that all is well."""
    monkeypatch.setattr(retiring, "GONE_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(retiring, "_LOOK_SECONDS", 0.01)
    paths = Paths(str(data_dir))
    with flushing_daemon(paths) as daemon:
        with trio.fail_after(20), pytest.raises(DaemonUnavailable, match=f"pid {daemon.pid}") as caught:
            await retire(paths, environ={}, reason="stopping")
        assert f"kill -9 {daemon.pid}" in str(caught.value.details["hint"])
        daemon.communicate()


@pytest.mark.parametrize(
    "note", ["", "pid=0 version=1", "pid=99999999999 version=1", "pid=2147483647 version=1"]
)
async def test_a_lock_that_names_no_living_daemon_keeps_nobody_waiting(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    """A daemon of another directory holds the lock of the one in which its database lies, unnamed."""
    monkeypatch.setattr(retiring, "_NAME_SECONDS", 0.0)
    paths = Paths(str(data_dir))
    with FileLock(paths.lock) as lock, trio.fail_after(20):
        assert lock.try_acquire()
        lock.note(note)
        assert await retire(paths, environ={}, reason="stopping") is None
        lock.note("")


async def test_a_lock_that_a_dead_daemon_left_is_no_daemon(data_dir: Path) -> None:
    """Lock files are never removed, and their text outlives the process that wrote it."""
    paths = Paths(str(data_dir))
    with FileLock(paths.lock) as lock:
        assert lock.try_acquire()
        lock.note("pid=1 version=1\n")
    with trio.fail_after(20):
        assert await retire(paths, environ={}, reason="stopping") is None
