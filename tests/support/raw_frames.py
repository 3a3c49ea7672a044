"""The wire in arrays, as any release may have written it: nothing here knows what a message means."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import trio


class Frames:
    """Arrays over a socket, as the wire has them."""

    def __init__(self, socket: trio.socket.SocketType) -> None:
        self.socket = socket
        self._held = bytearray()

    async def send(self, *array: Any) -> None:
        payload = msgpack.packb(list(array))
        data = memoryview(struct.pack(">I", len(payload)) + payload)
        while data:
            data = data[await self.socket.send(data) :]

    async def receive(self) -> list[Any] | None:
        """Return the next array, or None at the end."""
        while len(self._held) < 4 or len(self._held) < 4 + struct.unpack_from(">I", self._held)[0]:
            data = await self.socket.recv(65536)
            if not data:
                return None
            self._held += data
        (size,) = struct.unpack_from(">I", self._held)
        array: list[Any] = msgpack.unpackb(bytes(self._held[4 : 4 + size]))
        del self._held[: 4 + size]
        return array


@asynccontextmanager
async def dialled(path: str, *hello: Any) -> AsyncIterator[Frames]:
    """Connect to a daemon and say hello."""
    with trio.socket.socket(trio.socket.AF_UNIX) as socket:
        await socket.connect(path)
        frames = Frames(socket)
        await frames.send("hello", *hello)
        yield frames


@asynccontextmanager
async def listening(path: str) -> AsyncIterator[trio.socket.SocketType]:
    """Listen where a daemon would, until the block is left; then the path is free again."""
    with trio.socket.socket(trio.socket.AF_UNIX) as socket:
        await socket.bind(path)
        socket.listen(16)
        yield socket
    await trio.Path(path).unlink()
