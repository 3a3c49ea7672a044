"""What one tool of the surface is: how it is declared to clients and what it does with a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpstated.protocol.limits import Limits
    from mcpstated.protocol.store import Caller, Store
    from mcpstated.surface.arguments import Arguments

Success = dict[str, object]
"""The fields of a reply beside `ok`, in the order in which a model reads them."""

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
}
"""What every reply fits, success or failure, so that a strict client accepts both."""

REQUEST_KEY: dict[str, Any] = {
    "type": "string",
    "description": "Makes repeating safe: the same key and arguments within a day get the first answer again",
}
"""The schema of `request_key`, which every tool that writes takes."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, ready to be performed."""

    store: Store
    limits: Limits
    caller: Caller
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class StateTool:
    """A tool: FastMCP lists its declaration, `calls` performs it."""

    name: str
    title: str
    description: str
    parameters: dict[str, Any]
    """The input schema, written by hand: any client must accept it, and it is in every prompt."""
    annotations: Mapping[str, bool]
    """The hints of the wire (`readOnlyHint` and so on)."""
    perform: Callable[[Call], Awaitable[Success]]
    """Raises McpStateError for everything that the caller can repair."""


def hints(
    *, is_read_only: bool, is_destructive: bool = False, is_idempotent: bool = False
) -> Mapping[str, bool]:
    """Return annotations that leave no hint to a client's defaults; no tool here reaches an open world."""
    return {
        "readOnlyHint": is_read_only,
        "destructiveHint": is_destructive,
        "idempotentHint": is_idempotent or is_read_only,
        "openWorldHint": False,
    }
