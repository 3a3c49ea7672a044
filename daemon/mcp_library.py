"""The MCP server and its libraries, loaded while the daemon serves already.

They take a second or two to import, far longer than everything else together, and what clients ask for
hardly ever needs them (`mcpstated.surface.direct`). They are loaded all the same, right after the start: a
package that is uninstalled or upgraded under a running daemon must not break it. Only
`mcpstated.daemon.loops` imports them.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import trio

from mcpstated.daemon.envelope import INTERNAL_ERROR
from mcpstated.daemon.logs import log_event

if TYPE_CHECKING:
    from types import ModuleType

    from mcpstated.protocol.limits import Limits
    from mcpstated.protocol.store import Store
    from mcpstated.surface.context import RequestContext

log = logging.getLogger("mcpstated.relay")


@dataclass(frozen=True, slots=True)
class Inward:
    """One message for a loop of the MCP server."""

    method: str
    params: dict[str, Any] | None
    seq: int | None = None
    """The number of the line that a request came in; None for a notification."""
    context: RequestContext | None = None


class Outward(Protocol):
    """Where a loop's messages go."""

    async def on_outcome(self, seq: int, outcome: dict[str, Any] | None) -> None:
        """Take what became of a request: its `result` or its `error`; None if there will be no answer."""
        ...

    async def on_message(self, message: dict[str, Any]) -> None:
        """Take what the server says by itself."""
        ...


class McpLibrary:
    """The MCP server over one store, as soon as it is there.

    Args:
        store: What the tools work on.
        limits: The daemon's bounds.
        host: The name of this machine, for writer labels.
        version: What the server says it is.
        default_user: Whose name the first round goes by.
    """

    def __init__(self, store: Store, *, limits: Limits, host: str, version: str, default_user: str) -> None:
        self._store = store
        self._limits = limits
        self._host = host
        self._version = version
        self._default_user = default_user
        self._loaded = trio.Event()
        self._server: Any = None
        self._loops: ModuleType | None = None

    async def load(self) -> None:
        """Import the libraries, build the server and run a first round through it; log it if that fails."""
        gc.disable()  # else it would go through all modules again and again, with every call waiting
        try:
            self._loops, self._server = await trio.to_thread.run_sync(self._build, abandon_on_cancel=True)
        except Exception:  # without it, most clients are served all the same
            log.exception("MCP server could not be loaded")
        finally:
            gc.freeze()
            gc.enable()
        self._loaded.set()
        if self._loops is None:
            return
        try:
            await self._loops.warm_up(self._server, user=self._default_user)
        except Exception:
            log.exception("first round through the MCP server failed")
        log_event(log, "debug", "MCP server loaded")

    def _build(self) -> tuple[ModuleType, Any]:
        from mcpstated.daemon import loops

        server = loops.build_server(self._store, limits=self._limits, host=self._host, version=self._version)
        return loops, server

    async def serve(self, source: trio.MemoryReceiveChannel[Inward], outward: Outward) -> None:
        """Answer one client's messages of one era, in order, once the server is there."""
        await self._loaded.wait()
        if self._loops is not None:
            await self._loops.serve(self._server, source, outward)
            return
        error = {"code": INTERNAL_ERROR, "message": "Internal error"}
        async for item in source:
            if item.seq is not None:
                await outward.on_outcome(item.seq, {"error": error})
