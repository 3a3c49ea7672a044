"""A client of the demo: the official MCP SDK, talking over stdio to a shim of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import Implementation

from mcpstated.cli.demo.failed import DemoFailed
from mcpstated.cli.stage import Stage

CALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a tool call came back with."""

    who: str
    tool: str
    seconds: float
    is_error: bool
    fields: dict[str, Any]
    """The structured content; for an error, what is under `error`."""
    text: str


class Actor:
    """One MCP client with a name."""

    def __init__(self, name: str, client: Client, start_seconds: float) -> None:
        self.name = name
        self.start_seconds = start_seconds
        """From starting the shim to the end of the MCP handshake."""
        self.protocol = client.protocol_version
        self._client = client

    async def try_call(self, tool: str, **arguments: object) -> Reply:
        """Call a tool and return its reply, be it a success or an error.

        Raises:
            DemoFailed: The reply is not what tools of ours answer.
        """
        began = time.perf_counter()
        result = await self._client.call_tool(tool, arguments, read_timeout_seconds=CALL_SECONDS)
        seconds = time.perf_counter() - began
        fields = result.structured_content
        text = "\n".join(part.text for part in result.content if part.type == "text")
        if not isinstance(fields, dict) or fields.get("ok") is not (not result.is_error):
            raise DemoFailed(f"{self.name} called {tool} and got no answer of ours: {text}")
        return Reply(
            self.name, tool, seconds, result.is_error, fields["error"] if result.is_error else fields, text
        )

    async def call(self, tool: str, **arguments: object) -> Reply:
        """Call a tool that has to work.

        Raises:
            DemoFailed: It did not.
        """
        reply = await self.try_call(tool, **arguments)
        if reply.is_error:
            raise DemoFailed(f"{self.name} called {tool} and was refused: {reply.text}")
        return reply


@asynccontextmanager
async def acting(name: str, title: str, stage: Stage, *, mode: str) -> AsyncIterator[Actor]:
    """Start a shim through the SDK's stdio client, and end it with the block.

    Args:
        name: What the client calls itself in the MCP handshake.
        mode: The SDK's word for the handshake: `auto` is the newest, `legacy` the older `initialize`.
    """
    shim = StdioServerParameters(
        command=sys.executable,
        args=["-m", "mcpstated.cli", "shim"],
        env={key: value for key, value in stage.environ.items() if key.startswith("MCPSTATED_")},
    )
    information = Implementation(name=name, title=title, version="1.0.0")
    began = time.perf_counter()
    with (Path(stage.paths.data_dir) / f"{name}.stderr").open("w") as errors:
        async with Client(stdio_client(shim, errlog=errors), client_info=information, mode=mode) as client:
            yield Actor(name, client, time.perf_counter() - began)
