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
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    SERVER_INFO_META_KEY,
    DiscoverResult,
    InitializeResult,
    ServerCapabilities,
    ToolsCapability,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcpstated.protocol.wording import printable
from mcpstated.surface.calls import ToolCalls, read_params
from mcpstated.surface.coercion import around
from mcpstated.surface.context import DirectContext, RequestContext

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.lowlevel.server import Server

    from mcpstated.protocol.limits import Limits
    from mcpstated.surface.replies import ToolResult

log = logging.getLogger("mcpstated.surface")

_MAX_METHOD_CHARS = 60

SERVED_METHODS = frozenset({"initialize", "ping", "server/discover", "tools/list", "tools/call"})
CAPABILITIES = ServerCapabilities(tools=ToolsCapability(list_changed=False))
"""The tools never change while the server runs."""


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

    async def answer_in_handshake_era(
        self, request: RequestContext, params: dict[str, Any] | None
    ) -> ToolResult:
        """Return the result of a `tools/call` that needs nothing of the MCP server.

        After the handshake a call of the older era carries no envelope to examine and its result no
        stamp, so the relay may come here without the server's loop, which costs more than the call.

        Args:
            request: Who asks; its `client_name` is the one of the handshake.

        Raises:
            MCPError: There is no such tool, or the parameters are not those of a tool call.
        """
        name, arguments = read_params(params, self._limits)
        return await self._calls.answer(DirectContext(request), name, arguments)

    async def _answer(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        result = await self._calls.answer(ctx, *read_params(ctx.params, self._limits))
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            result["resultType"] = "complete"
            result["_meta"] = self._stamp
        return result


def _corrected(result: HandlerResult) -> HandlerResult:
    if isinstance(result, InitializeResult | DiscoverResult):
        return result.model_copy(update={"capabilities": CAPABILITIES})
    return result


def gate_of(server: Server[Any]) -> Gate:
    """Return the gate that stands in front of a server of `build_surface`."""
    return next(layer for layer in server.middleware if isinstance(layer, Gate))


async def _without_text(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Go on, but let no text of an unexpected exception reach the client."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except Exception:
        log.exception("request failed", extra={"fields": {"method": ctx.method}})
        raise MCPError(code=INTERNAL_ERROR, message="Internal error") from None
