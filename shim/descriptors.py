"""The standard descriptors of the shim, made safe without changing a flag of any of them.

They belong to the client too (an inherited pipe has one set of flags for both), so none is ever made
non-blocking; `output` and `relay` never start a read or a write that could wait instead.
"""

from __future__ import annotations

import fcntl
import os
import select

STDIN = 0
_FIRST_FREE = 3


def take_over_stdout() -> int:
    """Return a private duplicate of descriptor 1, which afterwards points to standard error.

    No stray print can then reach the client. A descriptor that was closed becomes /dev/null first, so
    that nothing opened later takes its number.
    """
    for fd in range(_FIRST_FREE):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    stdout = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    os.dup2(2, 1)
    return stdout


def note(text: str) -> None:
    """Write one line to standard error, or nothing if it is dead or full: a log is never worth a wait."""
    poller = select.poll()
    poller.register(2, select.POLLOUT)
    try:
        if poller.poll(0):
            os.write(2, f"mcpstated shim: {text}\n".encode("utf-8", "replace")[: select.PIPE_BUF])
    except OSError:
        return  # nobody reads it
