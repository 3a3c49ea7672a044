"""The outermost layer of the MCP server: what is offered, and nothing else.

    relay -> MCP server -> gate -> tools/call -> ToolCalls
                            |
                            \\-> initialize, ping, server/discover, tools/list -> FastMCP

A result that is answered here goes to the wire as it is. Further in, every tool call would pass
FastMCP's own chain, and every document two rounds of validation, neither of which has anything to add.
FastMCP also offers prompts, resources, logging and an extension whether there are any or not; clients
ask for what is advertised, so the gate corrects that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    SERVER_INFO_META_KEY,
    DiscoverResult,
    InitializeResult,
    ServerCapabilities,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcpstated.protocol.wording import printable
from mcpstated.surface.calls import ToolCalls, read_params
from mcpstated.surface.coercion import around
from mcpstated.surface.context import RequestContext
from mcpstated.surface.declaration import CAPABILITIES
from mcpstated.surface.faults import ProtocolFault

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.lowlevel.server import Server

    from mcpstated.protocol.limits import Limits

log = logging.getLogger("mcpstated.surface")

_MAX_METHOD_CHARS = 60

SERVED_METHODS = frozenset({"initialize", "ping", "server/discover", "tools/list", "tools/call"})
_CAPABILITIES = ServerCapabilities.model_validate(CAPABILITIES)


class Gate:
    """Server middleware that answers tool calls and keeps the server to its offer.

    Args:
        calls: Answers tool calls.
        server: The server that it is put in front of.
        limits: The daemon's bounds.
    """

    def __init__(self, calls: ToolCalls, server: Server[Any], *, limits: Limits) -> None:
        self._calls = calls
        self._limits = around(limits)
        self._stamp = {SERVER_INFO_META_KEY: server.server_info_stamp}

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answer a tool call, refuse what is not served, pass on the rest."""
        if ctx.request_id is None:
            return await call_next(ctx)
        if ctx.method == "tools/call":
            return await self._answer(ctx)
        if ctx.method not in SERVED_METHODS:
            raise MCPError(
                code=METHOD_NOT_FOUND,
                message="Method not found",
                data=printable(ctx.method, _MAX_METHOD_CHARS),
            )
        return _corrected(await _without_text(ctx, call_next))

    async def _answer(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        try:
            name, arguments = read_params(ctx.params, self._limits)
            result = await self._calls.answer(request_of(ctx), name, arguments)
        except ProtocolFault as fault:
            raise MCPError(code=fault.code, message=fault.message) from None
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            result["resultType"] = "complete"
            result["_meta"] = self._stamp
        return result


def _corrected(result: HandlerResult) -> HandlerResult:
    if isinstance(result, InitializeResult | DiscoverResult):
        return result.model_copy(update={"capabilities": _CAPABILITIES})
    return result


def request_of(ctx: Any) -> RequestContext | None:
    """Return who asks, with the name that the client gave in its handshake or gives in the request."""
    request: object = getattr(ctx, "request", None)
    if not isinstance(request, RequestContext):
        return None
    return request if request.client_name else replace(request, client_name=_client_name(ctx))


def _client_name(ctx: Any) -> str:
    handshake = ctx.session.client_params
    if handshake is not None:
        return str(handshake.client_info.name)
    info = (ctx.meta or {}).get(CLIENT_INFO_META_KEY)
    name = info.get("name") if isinstance(info, Mapping) else None
    return name if isinstance(name, str) else ""


async def _without_text(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Go on, but let no text of an unexpected exception reach the client."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except Exception:
        log.exception("request failed", extra={"fields": {"method": ctx.method}})
        raise MCPError(code=INTERNAL_ERROR, message="Internal error") from None
