"""Who stands behind one request, as the relay knows it and the tools need it.

The relay attaches a `RequestContext` to every message that it feeds to the MCP server; nothing in it
comes from the message itself, so no model can choose it. The kernel vouches for the uid of the peer, and
only the daemon's own is served; `user` and `writer` are labels within that uid, which a shim names in its
hello.
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
    """Whose states a message is about, who is written beside a change, and which forwarded call it is."""

    user: str
    """Whose handles are seen: MCPSTATED_USER of the client that started the shim, or the daemon's default.
    It keeps people and agents apart who trust each other; it proves nothing."""
    writer: str = ""
    """The label that the peer asked for; empty means one made of host and client."""
    token: CallToken | None = None
    """Names the forwarded call, so that it is applied once; None for calls that nobody repeats."""
    client_name: str = ""
    """What the client calls itself; empty if the MCP server is to find out."""

    scope: ClassVar[Mapping[str, object]] = _NOTHING
    headers: ClassVar[Mapping[str, object]] = _NOTHING
    """Both are what FastMCP looks for on the web requests that it expects in this place."""
