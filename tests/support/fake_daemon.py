"""The daemon's end of the wire in the hands of a test: it says only what the test makes it say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from mcpstated.protocol.connection import Connection
from mcpstated.protocol.messages import (
    PROTOCOL_MAX,
    Deliver,
    Forward,
    Goodbye,
    Hello,
    Settled,
    Welcome,
)
from support.wire import WirePeer

FRAME_BYTES = 16 * 1024 * 1024


def welcome(max_frame_bytes: int = FRAME_BYTES) -> Welcome:
    """Return what a daemon of this version says first."""
    return Welcome(PROTOCOL_MAX, [], "fake", "instance", os.getpid(), {"max_frame_bytes": max_frame_bytes})


class ShimEnd(WirePeer):
    """One connection that a shim made."""

    hello: Hello

    async def greet(self, max_frame_bytes: int = FRAME_BYTES) -> None:
        """Take the hello and answer it."""
        hello = await self.receive()
        assert isinstance(hello, Hello)
        self.hello = hello
        await self.send(welcome(max_frame_bytes))
        self.connection.set_max_frame_bytes(max_frame_bytes)

    async def forward(self) -> Forward:
        """Return the next line that was forwarded."""
        message = await self.receive()
        assert isinstance(message, Forward), message
        return message

    async def forwards(self, count: int) -> list[Forward]:
        """Return the next lines that were forwarded."""
        return [await self.forward() for _ in range(count)]

    async def deliver(self, line: bytes, answers: int | None, keep: bool = False) -> None:
        await self.send(Deliver(line, answers, keep))

    async def settle(self, seq: int, keep: bool = False) -> None:
        await self.send(Settled(seq, keep))

    async def say_goodbye(self, reason: str, text: str = "") -> None:
        """Say goodbye and hang up."""
        await self.send(Goodbye(reason, text))
        self.hang_up()

    async def ended(self) -> None:
        """Return when the shim has closed the connection; what it still sends is dropped."""
        try:
            while await self.socket.recv(65536):
                pass
        except ConnectionResetError:
            return

    def hang_up(self) -> None:
        """End the connection as a killed process does."""
        self.socket.close()


class FakeDaemon:
    """Listens where the daemon of a data directory listens."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "daemon.sock"
        self._listening: trio.socket.SocketType | None = None
        self._ends: list[ShimEnd] = []

    async def listen(self) -> None:
        """Bind the socket, which must not be there."""
        self._listening = trio.socket.socket(trio.socket.AF_UNIX)
        await self._listening.bind(str(self.path))
        self._listening.listen(64)

    def vanish(self) -> None:
        """Stop listening and take the socket away."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            self.path.unlink()

    async def accept(self, max_frame_bytes: int = FRAME_BYTES) -> ShimEnd:
        """Return the next connection, greeted."""
        shim = await self.accept_silently()
        await shim.greet(max_frame_bytes)
        return shim

    async def accept_silently(self) -> ShimEnd:
        """Return the next connection without a word having been said."""
        assert self._listening is not None
        accepted, _address = await self._listening.accept()
        end = ShimEnd(accepted, Connection("daemon"))
        self._ends.append(end)
        return end

    def close(self) -> None:
        """Vanish, and end every connection."""
        self.vanish()
        for end in self._ends:
            end.hang_up()


@contextmanager
def fake_daemon(data_dir: Path) -> Iterator[FakeDaemon]:
    """Give a daemon that does not listen yet."""
    daemon = FakeDaemon(data_dir)
    try:
        yield daemon
    finally:
        daemon.close()
