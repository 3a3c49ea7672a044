"""The bytes that wait for one peer, and the task that writes them.

Answers wait for room (`put`), so a peer that reads slowly slows down only its own answers. What nobody
asked for (`put_nowait`) never waits. A peer that takes no byte at all for a while although the box is
full is a slow reader: the session ends. Owned by one session; only its writer task touches the socket.
"""

from __future__ import annotations

import socket as stdlib_socket
from collections import deque

import trio

_CHUNK_BYTES = 256 * 1024
"""How much is joined into one send: many small answers cost one system call."""


class SlowReader(Exception):
    """The peer left `max_unread_bytes` unread and took nothing for the grace period."""


class Outbox:
    """A bounded queue of frames with one writer.

    Args:
        max_unread_bytes: Where `put` begins to wait and a standstill begins to count.
        grace_seconds: How long the peer may take nothing at all while the box is full.
    """

    def __init__(self, *, max_unread_bytes: int, grace_seconds: float) -> None:
        self._frames: deque[bytes] = deque()
        self._max = max_unread_bytes
        self._grace = grace_seconds
        self._has_work = trio.Event()
        self._changed = trio.Event()
        self._is_closed = False
        self.size_bytes = 0
        """Bytes not yet taken by the peer's kernel."""

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= self._max

    def put_nowait(self, frame: bytes) -> None:
        """Queue a frame whatever the fill; dropped after `close`."""
        if self._is_closed:
            return
        self._frames.append(frame)
        self.size_bytes += len(frame)
        self._has_work.set()

    async def room(self) -> None:
        """Return when `put` would not wait: before something big is built for a peer that does not read."""
        while self.is_full and not self._is_closed:
            await self._changed.wait()

    async def put(self, frame: bytes) -> None:
        """Queue a frame as soon as there is room; dropped after `close`."""
        await self.room()
        self.put_nowait(frame)

    async def changed(self) -> None:
        """Return after the peer took something, or the box was closed."""
        if not self._is_closed:
            await self._changed.wait()

    async def drained(self) -> None:
        """Return when everything queued has been taken, or the box is closed."""
        while self.size_bytes and not self._is_closed:
            await self._changed.wait()

    def close(self) -> None:
        """Drop what is queued and let nobody wait any longer."""
        self._is_closed = True
        self._frames.clear()
        self.size_bytes = 0
        self._notify()
        self._has_work.set()

    async def write_to(self, socket: trio.socket.SocketType) -> None:
        """Write until cancelled.

        Raises:
            SlowReader: See the class.
            OSError: The peer is gone.
        """
        # The same descriptor without trio around it: an answer that the kernel takes at once, as it nearly
        # always does, then costs a system call and no turn of the event loop.
        twin = stdlib_socket.socket(fileno=socket.fileno())
        twin.setblocking(False)
        try:
            while not self._is_closed:
                if not self._frames:
                    self._has_work = trio.Event()
                    await self._has_work.wait()
                    continue
                await self._write_chunk(twin, memoryview(self._take_chunk()))
        finally:
            twin.detach()

    async def _write_chunk(self, twin: stdlib_socket.socket, chunk: memoryview) -> None:
        while chunk:
            try:
                sent = twin.send(chunk)
            except BlockingIOError:
                with trio.move_on_after(self._grace) as patience:
                    await trio.lowlevel.wait_writable(twin)
                if patience.cancelled_caught and self.is_full:
                    raise SlowReader from None
                continue
            chunk = chunk[sent:]
            self.size_bytes = max(0, self.size_bytes - sent)
            self._notify()

    def _take_chunk(self) -> bytes:
        if len(self._frames) == 1:
            return self._frames.popleft()
        parts = [self._frames.popleft()]
        size = len(parts[0])
        while self._frames and size + len(self._frames[0]) <= _CHUNK_BYTES:
            parts.append(self._frames.popleft())
            size += len(parts[-1])
        return b"".join(parts)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
