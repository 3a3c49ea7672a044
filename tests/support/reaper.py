"""Finding and ending the daemons that a test started, by the lock that each holds for its whole life."""

from __future__ import annotations

import fcntl
import os
import re
import signal
from pathlib import Path

LOCK_NAME = "daemon.lock"


def daemon_pid(lock_file: Path) -> int | None:
    """Return the pid of the daemon that holds this lock, or None if nobody does."""
    with lock_file.open("r+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = re.match(r"pid=(\d+)", stream.read())
            return int(found[1]) if found else None
    return None


def kill_daemons_below(directory: Path) -> list[int]:
    """Kill every daemon whose directory lies in `directory`, wait for its end, and return the pids."""
    killed = []
    for lock_file in directory.rglob(LOCK_NAME):
        if not lock_file.is_file():
            continue
        pid = daemon_pid(lock_file)
        if pid is None or pid == os.getpid():
            continue
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        with lock_file.open("r+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # free once the kernel has ended the process
        killed.append(pid)
    return killed
