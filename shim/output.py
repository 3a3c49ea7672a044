"""The client's end: whole lines out, each followed by a newline, without ever waiting.

The descriptor stays blocking (see `descriptors`). A socket is written to with MSG_DONTWAIT; anything
else in portions of at most PIPE_BUF bytes, each after poll said that there is room, which for a pipe
means room for that much.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import sys

_CHUNK_BYTES = 65536 if sys.platform == "linux" else select.PIPE_BUF
"""Elsewhere a socket is treated like a pipe: MSG_DONTWAIT is not honoured everywhere."""
_BURST_BYTES = 262144
"""What one `flush` writes at most, so that other descriptors get their turn."""


class Output:
    """Lines that wait for the client to read them.

    Args:
        fd: Where they are written; belongs to this object from now on.
    """

    __slots__ = ("_pending", "_poller", "_socket", "fd", "is_dead")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_dead = False
        """True once nobody can read any more."""
        self._pending = bytearray()
        self._socket = socket.socket(fileno=fd) if stat.S_ISSOCK(os.fstat(fd).st_mode) else None
        self._poller = select.poll()
        self._poller.register(fd, select.POLLOUT)

    @property
    def pending_bytes(self) -> int:
        """Bytes that the client has not taken yet."""
        return len(self._pending)

    def put(self, line: bytes) -> None:
        """Queue one line."""
        if b"\n" in line:
            line = line.replace(b"\n", b" ")  # can only be white space between tokens of JSON
        self._pending += line
        self._pending += b"\n"

    def flush(self) -> int:
        """Write what can be written without waiting, and return how many bytes that was."""
        written = 0
        try:
            while self._pending and written < _BURST_BYTES:
                count = self._write()
                if count == 0:
                    break
                del self._pending[:count]
                written += count
        except OSError:
            self.is_dead = True
            self._pending.clear()
        return written

    def close(self) -> None:
        """Close the descriptor; the client then sees the end."""
        if self._socket is not None:
            self._socket.close()
        else:
            os.close(self.fd)

    def _write(self) -> int:
        if self._socket is not None:
            try:
                return self._socket.send(bytes(self._pending[:_CHUNK_BYTES]), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return 0
        if not self._poller.poll(0):
            return 0
        try:
            return os.write(self.fd, bytes(self._pending[: select.PIPE_BUF]))
        except BlockingIOError:  # the client itself made it non-blocking
            return 0
