"""Wait for the end of a process that is not a child of ours."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys

import trio

_FIRST_POLL_SECONDS = 0.005
_LAST_POLL_SECONDS = 0.1


async def wait_gone(pid: int, *, timeout_seconds: float) -> bool:
    """Return True as soon as the process has ended, False if it still lives after the timeout.

    A process that has ended but was not collected by its parent counts as gone: its descriptors are
    closed and its locks are free.
    """
    with trio.move_on_after(timeout_seconds):
        await _gone(pid)
        return True
    return False


async def _gone(pid: int) -> None:
    if sys.platform == "linux":
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
                raise
        else:
            try:
                await trio.lowlevel.wait_readable(descriptor)
            finally:
                os.close(descriptor)
            return
    delay = _FIRST_POLL_SECONDS
    while is_alive(pid):
        await trio.sleep(delay)
        delay = min(2 * delay, _LAST_POLL_SECONDS)


def is_alive(pid: int) -> bool:
    """Tell whether there is such a process now; Linux counts one that nobody has collected."""
    try:
        if sys.platform == "darwin":  # where signal 0 reaches a zombie too, and no event can be had of one
            with contextlib.closing(select.kqueue()) as queue:
                queue.control([_exit_of(pid)], 0)
        else:
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if sys.platform == "darwin":

    def _exit_of(pid: int) -> select.kevent:
        return select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
