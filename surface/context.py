"""Who stands behind one request, as the relay knows it and the tools need it.

The relay attaches a `RequestContext` to every message that it feeds to the MCP server; nothing in it
comes from the message itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from mcpstated.protocol.store import CallToken

_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The identity that the daemon vouches for, and the name of the forwarded call."""

    user: str
    """The principal: what the kernel or an authenticator said, never what a client says."""
    writer: str = ""
    """The label that the peer asked for; empty means one made of host and client."""
    token: CallToken | None = None
    """Names the forwarded call, so that it is applied once; None for calls that nobody repeats."""

    scope: ClassVar[Mapping[str, object]] = _NOTHING
    headers: ClassVar[Mapping[str, object]] = _NOTHING
    """Both are what FastMCP looks for on the web requests that it expects in this place."""
