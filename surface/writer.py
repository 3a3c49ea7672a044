"""The writer label: which client, on which machine, made a change.

A label is for people who read a history. It says nothing about rights: those follow from the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mcp_types import CLIENT_INFO_META_KEY

from mcpstated.surface.context import DirectContext

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

_MAX_SLUG_CHARS = 64
_NOT_SLUG = re.compile(r"[^a-z0-9._]+")


def writer_of(
    ctx: ServerRequestContext[Any, Any] | DirectContext, *, wanted: str, host: str, max_chars: int
) -> str:
    """Return the label to write beside a change.

    Args:
        ctx: The request; its handshake or its `_meta` may name the client.
        wanted: The label that the peer asked for; wins if it is not empty.
        host: The name of this machine.
        max_chars: Longer labels are cut.

    Returns:
        `wanted`, or `host/client`, or only `host` if the client does not say what it is.
    """
    if wanted:
        return wanted[:max_chars]
    client = slug(client_name(ctx))
    return (f"{host}/{client}" if client else host)[:max_chars]


def client_name(ctx: ServerRequestContext[Any, Any] | DirectContext) -> str:
    """Return what the client calls itself: in the handshake, or in the request; empty if it does not."""
    if isinstance(ctx, DirectContext):
        return ctx.request.client_name
    handshake = ctx.session.client_params
    if handshake is not None:
        return handshake.client_info.name
    info = (ctx.meta or {}).get(CLIENT_INFO_META_KEY)
    name = info.get("name") if isinstance(info, Mapping) else None
    return name if isinstance(name, str) else ""


@lru_cache(maxsize=256)
def slug(name: str) -> str:
    """Return `name` as a short label: `Claude Code` becomes `claude-code`. Empty if nothing is left."""
    return _NOT_SLUG.sub("-", name[:1000].lower()).strip("-._")[:_MAX_SLUG_CHARS].rstrip("-._")
