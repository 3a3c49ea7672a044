"""Fake peers: a shim and a library client that speak the wire and do nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from mcpstated.protocol.connection import Connection
from mcpstated.protocol.messages import (
    FRESH,
    Deliver,
    Failure,
    Forward,
    Goodbye,
    Hello,
    Message,
    Request,
    Response,
    Settled,
    Welcome,
)

MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "Modern Client", "version": "2"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class WirePeer:
    """One end of a connection to a daemon."""

    def __init__(self, socket: trio.socket.SocketType, connection: Connection) -> None:
        self.socket = socket
        self.connection = connection

    async def send(self, message: Message) -> None:
        data = memoryview(self.connection.send(message))
        while data:
            data = data[await self.socket.send(data) :]

    async def receive(self) -> Message | None:
        """Return the next message, or None at the end of the connection."""
        while (message := self.connection.next_event()) is None:
            data = await self.socket.recv(65536)
            if not data:
                return None
            self.connection.receive_data(data)
        return message


class FakeShim(WirePeer):
    """Forwards lines and collects what comes back."""

    seq = 0

    async def forward(self, line: bytes, *, mode: int = FRESH, seq: int | None = None, floor: int = 0) -> int:
        if seq is None:
            self.seq += 1
            seq = self.seq
        await self.send(Forward(seq, mode, floor, line))
        return seq

    async def say(self, **members: Any) -> int:
        return await self.forward(json.dumps({"jsonrpc": "2.0", **members}).encode())

    async def settlement(self, seq: int) -> Deliver | Settled:
        """Return what settles a line; whatever else comes meanwhile is dropped."""
        while True:
            message = await self.receive()
            assert message is not None, "the daemon ended the connection"
            if isinstance(message, Deliver) and message.answers == seq:
                return message
            if isinstance(message, Settled) and message.seq == seq:
                return message

    async def ask(self, id_: object, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to one request."""
        members = {"id": id_, "method": method, **({} if params is None else {"params": params})}
        answer = await self.settlement(await self.say(**members))
        assert isinstance(answer, Deliver)
        return json.loads(answer.line)

    async def handshake(self, name: str = "Test Client") -> dict[str, Any]:
        """Do the legacy handshake and return the result of initialize."""
        answer = await self.ask(
            "init",
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": name, "version": "1"},
            },
        )
        await self.settlement(await self.say(method="notifications/initialized"))
        return answer["result"]

    async def tool(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool in the legacy era and return its structured content."""
        answer = await self.ask(f"t{self.seq}", "tools/call", {"name": name, "arguments": arguments})
        assert "result" in answer, answer
        return answer["result"]["structuredContent"]

    async def modern(self, id_: object, method: str, **params: Any) -> dict[str, Any]:
        """Make one request of the modern era."""
        return await self.ask(id_, method, {"_meta": MODERN_META, **params})

    async def still_has_its_session(self, path: str) -> bool:
        """Ask a daemon whether it holds a session of any shim."""
        async with client_at(path) as client:
            status = await client.request("status")
        return any(session["role"] == "shim" for session in status["sessions"])


class FakeClient(WirePeer):
    """Makes requests one at a time."""

    id = 0

    async def request(self, operation: str, **parameters: Any) -> dict[str, Any]:
        self.id += 1
        await self.send(Request(self.id, operation, parameters))
        answer = await self.receive()
        assert isinstance(answer, Response | Failure), answer
        assert answer.id == self.id
        return answer.result if isinstance(answer, Response) else {"error": answer.error}


def hello(role: str, *, shim_id: bytes | None = None, user: str = "", writer: str = "") -> Hello:
    identity = (shim_id or os.urandom(16)) if role == "shim" else b""
    return Hello(1, 1, [], role, "test", identity, user, writer, os.getpid())


@asynccontextmanager
async def connected(path: str) -> AsyncIterator[WirePeer]:
    """Connect and say nothing."""
    with trio.socket.socket(trio.socket.AF_UNIX) as socket:
        await socket.connect(path)
        yield WirePeer(socket, Connection("client"))


@asynccontextmanager
async def shim_at(
    path: str, *, shim_id: bytes | None = None, user: str = "", writer: str = ""
) -> AsyncIterator[FakeShim]:
    """Connect as a shim that has been welcomed."""
    async with connected(path) as peer:
        shim = FakeShim(peer.socket, peer.connection)
        await shim.send(hello("shim", shim_id=shim_id, user=user, writer=writer))
        assert isinstance(await shim.receive(), Welcome)
        yield shim


@asynccontextmanager
async def client_at(path: str, *, user: str = "", writer: str = "") -> AsyncIterator[FakeClient]:
    """Connect as a library client that has been welcomed."""
    async with connected(path) as peer:
        client = FakeClient(peer.socket, peer.connection)
        await client.send(hello("library", user=user, writer=writer))
        assert isinstance(await client.receive(), Welcome)
        yield client


async def farewell(peer: WirePeer) -> Goodbye:
    """Return the goodbye that ends the connection."""
    while True:
        message = await peer.receive()
        assert message is not None, "the connection ended without a goodbye"
        if isinstance(message, Goodbye):
            assert await peer.receive() is None
            return message
