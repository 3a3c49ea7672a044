"""Waiting for a child process without ever waiting for ever.

What a start may run (the script that detaches the daemon, the service manager's command) ends within
moments unless something is wrong; what does not end is killed.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_DELAY_SECONDS = 0.001
_MAX_DELAY_SECONDS = 0.02
_KILLED_SECONDS = 1.0
"""How long a killed child may take to end; one that hangs inside the kernel is left behind."""


def wait_for_exit(pid: int, *, deadline: float, on_wait: Callable[[], None] | None = None) -> int | None:
    """Wait for a child to end and return its exit status, negative for the signal that killed it.

    Args:
        deadline: On the monotonic clock; a child that still runs then is killed.
        on_wait: Called while waiting; if it raises, the child is killed.

    Returns:
        None if it had to be killed.

    Raises:
        ChildProcessError: The host program ignores SIGCHLD, or waits for everyone's children.
    """
    try:
        status = _status_of(pid, deadline, on_wait)
    except ChildProcessError:
        raise
    except BaseException:
        _kill(pid)
        raise
    if status is None:
        _kill(pid)
    return status


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        _status_of(pid, time.monotonic() + _KILLED_SECONDS, None)
    except (ChildProcessError, ProcessLookupError):
        return  # somebody else has waited for it


def _status_of(pid: int, deadline: float, on_wait: Callable[[], None] | None) -> int | None:
    delay_seconds = _FIRST_DELAY_SECONDS
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(delay_seconds, left))
        delay_seconds = min(delay_seconds * 2, _MAX_DELAY_SECONDS)
        if on_wait is not None:
            on_wait()
