"""An MCP client as simple as one can be: it starts a real shim, which starts a real daemon."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from mcpstated.protocol.paths import Paths
from support.shim_process import ShimProcess, shim_environment, shim_process


class McpClient:
    """Makes one request at a time over a shim's pipes."""

    def __init__(self, shim: ShimProcess) -> None:
        self.shim = shim
        self._id = 0

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to one request; there must be no other line."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params or {}}
        await self.shim.say(json.dumps(message).encode())
        answer: dict[str, Any] = await self.shim.answer()
        assert answer["id"] == self._id, answer
        return answer

    async def handshake(self, name: str = "Test Client") -> None:
        info = {"name": name, "version": "1"}
        answer = await self.ask(
            "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        )
        assert answer["result"]["serverInfo"]["name"] == "mcpstated", answer
        await self.shim.say(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    async def tool(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its structured content, of a success or a failure."""
        answer = await self.ask("tools/call", {"name": name, "arguments": arguments})
        content: dict[str, Any] = answer["result"]["structuredContent"]
        return content

    async def append(self, handle: str, value: object, path: str = "l") -> dict[str, Any]:
        operation = {"op": "append", "path": path, "value": value}
        return await self.tool("state_patch", handle=handle, ops=[operation])


def starting_environment(data_dir: Path, **more: str) -> dict[str, str]:
    """Return what a client hands on to a shim that may start the daemon."""
    environ = shim_environment(data_dir, **more)
    del environ["MCPSTATED_NO_SPAWN"]
    return environ


@asynccontextmanager
async def mcp_client(
    data_dir: Path, *, environ: Mapping[str, str] | None = None, name: str = "Test Client"
) -> AsyncIterator[McpClient]:
    """Start a shim and shake hands; the shim is killed when the block is left."""
    async with shim_process(data_dir, environ=environ or starting_environment(data_dir)) as shim:
        client = McpClient(shim)
        with trio.fail_after(60):
            await client.handshake(name)
        yield client


def daemon_pid(data_dir: Path) -> int:
    """Return the process that holds the directory, as its lock file tells people."""
    text = Path(Paths(str(data_dir)).lock).read_text()
    return int(text.split()[0].removeprefix("pid="))
