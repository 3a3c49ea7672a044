"""Telling whoever started the daemon that it serves, or why it does not.

    b"ready\\n"             the socket accepts
    b"failed: REASON\\n"    it will not; the reason is one line for people

Then the pipe is closed. A daemon in the foreground has no pipe and reports to stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys


class Ready:
    """The write end of a ready pipe; reports once.

    Args:
        fd: The descriptor that the starter gave, or None.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        if fd is not None:
            os.set_inheritable(fd, False)

    def report(self) -> None:
        """Say that the daemon serves."""
        self._write("ready\n")

    def fail(self, reason: str) -> None:
        """Say that the daemon will not serve."""
        if self._fd is None:
            sys.stderr.write(f"mcpstated: {reason}\n")
        self._write(f"failed: {' '.join(reason.split())}\n")

    def _write(self, text: str) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):  # the starter is gone: it no longer matters to anybody
                os.write(self._fd, text.encode())
            os.close(self._fd)
            self._fd = None
