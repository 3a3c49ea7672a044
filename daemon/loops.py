"""The loops of the MCP server: one for each client and protocol era, with the SDK and FastMCP behind it.

Nothing else in the daemon imports those two; `mcpstated.daemon.mcp_library` loads this module when the
daemon serves already. A loop settles on one era with its first request, and real clients mix the eras on one
pipe, so the relay opens one for each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import trio
from mcp.server.lowlevel.server import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from mcpstated.daemon.mcp_library import Inward
from mcpstated.surface.context import RequestContext
from mcpstated.surface.eras import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    PROTOCOL_VERSION_KEY,
)
from mcpstated.surface.server import build_surface

if TYPE_CHECKING:
    from mcpstated.daemon.mcp_library import Outward
    from mcpstated.protocol.limits import Limits
    from mcpstated.protocol.store import Store

_WARM_UP_SECONDS = 30.0
_CLIENT = {"name": "warm-up", "version": "1"}


def build_server(store: Store, *, limits: Limits, host: str, version: str) -> Server[Any]:
    """Return the low-level server of the surface; FastMCP has no public name for it."""
    server: Server[Any] = build_surface(store, limits=limits, host=host, version=version)._mcp_server
    return server


async def serve(server: Server[Any], source: trio.MemoryReceiveChannel[Inward], outward: Outward) -> None:
    """Run one loop until its source ends."""
    await serve_dual_era_loop(server, _Inlet(source, outward), _Outlet(outward), lifespan_state={})


async def warm_up(server: Server[Any], *, user: str) -> None:
    """Send both eras through the server once and wait for the answers (bounded).

    It loads what the libraries import on first use.
    """
    meta = {PROTOCOL_VERSION_KEY: MODERN_VERSIONS[-1], CLIENT_INFO_KEY: _CLIENT, CLIENT_CAPABILITIES_KEY: {}}
    handshake = {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": _CLIENT}
    listing = {"name": "state_list", "arguments": {"limit": 1}}
    context = RequestContext(user=user)
    with trio.move_on_after(_WARM_UP_SECONDS):
        for items in (
            [
                Inward("server/discover", {"_meta": meta}, 1, context),
                Inward("tools/list", {"_meta": meta}, 2, context),
                Inward("tools/call", {**listing, "_meta": meta}, 3, context),
            ],
            [
                Inward("initialize", handshake, 1, context),
                Inward("notifications/initialized", None),
                Inward("tools/list", None, 2, context),
                Inward("tools/call", listing, 3, context),
            ],
        ):
            await _round(server, items)


async def _round(server: Server[Any], items: list[Inward]) -> None:
    channel, source = trio.open_memory_channel[Inward](math.inf)
    async with trio.open_nursery() as nursery:
        outward = _Count(sum(item.seq is not None for item in items))
        nursery.start_soon(serve, server, source, outward)
        for item in items:
            channel.send_nowait(item)
        await outward.done.wait()
        nursery.cancel_scope.cancel()


class _Count:
    """Waits for so many outcomes."""

    def __init__(self, outcomes: int) -> None:
        self._left = outcomes
        self.done = trio.Event()

    async def on_outcome(self, seq: int, outcome: dict[str, Any] | None) -> None:  # noqa: ARG002
        self._left -= 1
        if not self._left:
            self.done.set()

    async def on_message(self, message: dict[str, Any]) -> None:
        """Nobody listens."""


class _Inlet:
    """The read stream of a loop: what the relay feeds, as the SDK knows it."""

    def __init__(self, source: trio.MemoryReceiveChannel[Inward], outward: Outward) -> None:
        self._source = source
        self._outward = outward

    async def receive(self) -> SessionMessage:
        return self._as_message(await self._source.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        return self._as_message(await self._source.__anext__())

    async def aclose(self) -> None:
        self._source.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._source.close()

    def _as_message(self, item: Inward) -> SessionMessage:
        seq = item.seq
        if seq is None:
            return SessionMessage(
                JSONRPCNotification.model_construct(jsonrpc="2.0", method=item.method, params=item.params)
            )
        request = JSONRPCRequest.model_construct(
            jsonrpc="2.0", id=seq, method=item.method, params=item.params
        )
        metadata = ServerMessageMetadata(
            request_context=item.context,
            on_request_unanswered=lambda: self._outward.on_outcome(seq, None),
        )
        return SessionMessage(request, metadata)


class _Outlet:
    """The write stream of a loop: hands on every message at once."""

    def __init__(self, outward: Outward) -> None:
        self._outward = outward

    async def send(self, item: SessionMessage, /) -> None:
        message: Any = item.message
        if isinstance(message, JSONRPCResponse):
            await self._outward.on_outcome(int(message.id), {"result": message.result})
        elif isinstance(message, JSONRPCError):
            if message.id is not None:
                error = message.error.model_dump(exclude_none=True)
                await self._outward.on_outcome(int(message.id), {"error": error})
        else:
            await self._outward.on_message(message.model_dump(by_alias=True, exclude_unset=True))

    async def aclose(self) -> None:
        """Nothing to close: the session owns the socket."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        return None
