"""The MCP server of the daemon: FastMCP declares and lists the tools, `calls` answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastmcp import FastMCP
from fastmcp.server.dependencies import get_context
from fastmcp.tools.base import Tool, ToolResult
from mcp_types import TextContent, ToolAnnotations
from pydantic import PrivateAttr

from mcpstated.surface.calls import ToolCalls
from mcpstated.surface.declaration import INSTRUCTIONS, NAME, TOOLS
from mcpstated.surface.gate import Gate, request_of
from mcpstated.surface.tool import OUTPUT_SCHEMA, StateTool

if TYPE_CHECKING:
    from mcpstated.protocol.limits import Limits
    from mcpstated.protocol.store import Store


def build_surface(store: Store, *, limits: Limits, host: str, version: str) -> FastMCP[Any]:
    """Return the MCP server over `store`.

    Args:
        store: What the tools work on.
        limits: The daemon's bounds.
        host: The name of this machine, for writer labels.
        version: What the server says it is.

    Returns:
        A FastMCP server. Its low-level server is what a relay feeds; each message must carry a
        RequestContext, or its tool calls are refused as unauthenticated.
    """
    calls = ToolCalls(TOOLS, store, limits=limits, host=host)
    surface: FastMCP[Any] = FastMCP(
        NAME,
        instructions=INSTRUCTIONS,
        version=version,
        tools=[_declare(tool, calls) for tool in TOOLS],
        mask_error_details=True,
        dereference_schemas=False,  # the schemas hold no references
    )
    server = surface._mcp_server  # FastMCP has no public name for it
    server.middleware.insert(0, Gate(calls, server, limits=limits))
    return surface


class DeclaredTool(Tool):
    """A tool as FastMCP knows it.

    Clients of this server never reach `run`, for `calls` answers them before; clients of a server that
    this one is mounted in do.
    """

    _calls: ToolCalls = PrivateAttr()

    def to_mcp_tool(self, **overrides: Any) -> Any:
        """Declare nothing beside the declaration: every byte of it is in every prompt."""
        return super().to_mcp_tool(**{"_meta": None, **overrides})

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Answer a call that came through another FastMCP server."""
        reply = await self._calls.answer(request_of(get_context().request_context), self.name, arguments)
        return ToolResult(
            content=[TextContent(type="text", text=block["text"]) for block in reply["content"]],
            structured_content=reply["structuredContent"],
            is_error=reply["isError"],
        )


def _declare(tool: StateTool, calls: ToolCalls) -> DeclaredTool:
    declared = DeclaredTool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        parameters=tool.parameters,
        output_schema=OUTPUT_SCHEMA,
        annotations=ToolAnnotations.model_validate(tool.annotations),
    )
    declared._calls = calls
    return declared
