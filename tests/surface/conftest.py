"""The surface over a real engine, driven as a relay drives it, and through the official client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
from fastmcp import FastMCP
from mcp import Client
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner, serve_dual_era_loop, serve_one
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import Implementation

from mcpstated.daemon.backends.sqlite import SQLiteBackend
from mcpstated.daemon.clock import StoreClock
from mcpstated.daemon.engine import Engine
from mcpstated.daemon.feed import Feed
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.store import Store
from mcpstated.surface.context import RequestContext
from mcpstated.surface.direct import DirectAnswers
from mcpstated.surface.faults import ProtocolFault
from mcpstated.surface.server import build_surface

MODERN, LEGACY = "2026-07-28", "2025-11-25"
START_UNIX = 1_800_000_000.0


@dataclass
class Timer:
    """A clock that only moves when a test says so."""

    now: float = START_UNIX

    def __call__(self) -> float:
        return self.now


@dataclass
class Exchange:
    """What the SDK's kernel asks of a transport, for one message."""

    request_id: int | None
    message_metadata: ServerMessageMetadata | None
    transport: TransportContext = field(
        default_factory=lambda: TransportContext(kind="memory", can_send_request=False)
    )
    can_send_request: bool = False
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    async def notify(self, *_args: object) -> None:
        """Nobody listens."""


class Desk:
    """Makes requests of one client in one protocol era, as the relay would feed them."""

    def __init__(
        self,
        surface: FastMCP,
        era: str,
        *,
        direct: DirectAnswers | None = None,
        user: str = "ann",
        writer: str = "",
        client: str = "Probe",
    ) -> None:
        self._server = surface._mcp_server
        self._direct = direct
        self._era = era
        self._client = {"name": client, "version": "1"}
        self.context: RequestContext | None = RequestContext(user=user, writer=writer)
        self._runner = ServerRunner(self._server, Connection.for_loop(Exchange(None, None)), {})

    async def open(self) -> dict[str, Any]:
        """Say hello as this era does, and return the answer."""
        if self._era == MODERN:
            return await self.request("server/discover")
        hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": self._client}
        answer = await self.request("initialize", hello)
        await self._runner.on_notify(Exchange(None, None), "notifications/initialized", None)
        return answer

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of one request; raises MCPError for an error."""
        if self._direct is not None and isinstance(self.context, RequestContext) and method != "initialize":
            enveloped = params if self._era == LEGACY else {**(params or {}), "_meta": self._meta}
            is_modern = self._era == MODERN
            if self._direct.takes(method, enveloped, is_modern=is_modern, has_handshake=True):
                return await self._ask_directly(self._direct, self.context, method, enveloped)
        exchange = Exchange(1, ServerMessageMetadata(request_context=self.context))
        with trio.fail_after(20):
            if self._era == LEGACY:
                return await self._runner.on_request(exchange, method, params)
            connection = Connection.from_envelope(MODERN, self._client, {})
            enveloped = {**(params or {}), "_meta": self._meta}
            return await serve_one(
                self._server, exchange, method, enveloped, connection=connection, lifespan_state={}
            )

    @property
    def _meta(self) -> dict[str, Any]:
        return {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": self._client,
            "io.modelcontextprotocol/clientCapabilities": {},
        }

    async def _ask_directly(
        self, direct: DirectAnswers, context: RequestContext, method: str, params: dict[str, Any] | None
    ) -> dict[str, Any]:
        is_modern = self._era == MODERN
        if method != "tools/call":
            return direct.answer(method, params, is_modern=is_modern)
        try:
            named = replace(context, client_name=self._client["name"])
            with trio.fail_after(20):
                return await direct.call_tool(named, params, is_modern=is_modern)
        except ProtocolFault as fault:
            raise MCPError(code=fault.code, message=fault.message) from None

    async def call(self, tool: str, arguments: Any) -> dict[str, Any]:
        """Return the whole tool result, arguments as they are."""
        result = await self.request("tools/call", {"name": tool, "arguments": arguments})
        assert json.loads(result["content"][-1]["text"]) == result["structuredContent"]
        assert result["isError"] is not result["structuredContent"]["ok"]
        return result

    async def ok(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the reply of a call that must succeed."""
        result = await self.call(tool, arguments)
        assert result["structuredContent"]["ok"], result
        return result["structuredContent"]

    async def refused(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the error of a call that must fail."""
        result = await self.call(tool, arguments)
        assert not result["structuredContent"]["ok"], result
        return result["structuredContent"]["error"]

    async def mint(self, state: dict[str, Any] | None = None, /, **arguments: Any) -> str:
        """Start a new state and return its handle."""
        saved = await self.ok(
            "state_save", kind="research", state={} if state is None else state, **arguments
        )
        handle: str = saved["handle"]
        return handle

    async def state(self, handle: str) -> dict[str, Any]:
        """Return the whole document as it is now."""
        loaded = await self.ok("state_load", handle=handle, max_bytes=2**20)
        state: dict[str, Any] = loaded["state"]
        return state


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
async def store(tmp_path: Path, limits: Limits, timer: Timer, nursery: trio.Nursery) -> AsyncIterator[Store]:
    """A real engine over a database of its own."""
    backend = SQLiteBackend(str(tmp_path / "state.db"), limits=limits)
    engine = Engine(backend, clock=StoreClock(wall=timer, boot=timer), limits=limits, feed=Feed())
    with trio.fail_after(10):
        await nursery.start(engine.run)
    yield engine
    nursery.cancel_scope.cancel()


@pytest.fixture
async def surface(store: Store, limits: Limits) -> FastMCP:
    return build_surface(store, limits=limits, host="laptop", version="1.2.3")


@pytest.fixture(params=[LEGACY, MODERN], ids=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    """Both protocol eras that real clients speak."""
    era: str = request.param
    return era


@pytest.fixture(params=["server", "direct"])
async def direct(request: pytest.FixtureRequest, store: Store, limits: Limits) -> DirectAnswers | None:
    """Both ways that a request can take: through the MCP server, and past it."""
    if request.param == "server":
        return None
    return DirectAnswers(store, limits=limits, host="laptop", version="1.2.3")


@pytest.fixture
async def open_desk(
    surface: FastMCP, era: str, direct: DirectAnswers | None
) -> Callable[..., Awaitable[Desk]]:
    """Opens one client more, by default of the same user."""

    async def open_one(**identity: str) -> Desk:
        desk = Desk(surface, era, direct=direct, **identity)
        await desk.open()
        return desk

    return open_one


@pytest.fixture
async def desk(open_desk: Callable[..., Awaitable[Desk]]) -> Desk:
    return await open_desk()


@pytest.fixture
async def open_client(surface: FastMCP, era: str) -> Callable[..., Any]:
    """Connects the official client over memory streams; the identity is attached as the relay does."""

    @asynccontextmanager
    async def connect(name: str = "Official Client", user: str = "ann") -> AsyncIterator[Client]:
        @asynccontextmanager
        async def transport() -> AsyncIterator[Any]:
            async with create_client_server_memory_streams() as (
                (client_in, client_out),
                (server_in, server_out),
            ):
                fed, source = anyio.create_memory_object_stream[SessionMessage](100)

                async def attach_identity() -> None:
                    metadata = ServerMessageMetadata(request_context=RequestContext(user=user))
                    async with fed:
                        async for item in server_in:
                            assert isinstance(item, SessionMessage)
                            await fed.send(SessionMessage(item.message, metadata))

                async with trio.open_nursery() as tasks:
                    tasks.start_soon(attach_identity)
                    tasks.start_soon(
                        lambda: serve_dual_era_loop(
                            surface._mcp_server, source, server_out, lifespan_state={}
                        )
                    )
                    yield client_in, client_out
                    tasks.cancel_scope.cancel()

        mode = "legacy" if era == LEGACY else era
        with trio.fail_after(20):
            async with Client(
                transport(), mode=mode, client_info=Implementation(name=name, version="1")
            ) as client:
                yield client

    return connect
