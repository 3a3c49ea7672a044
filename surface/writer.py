"""The writer label: which client, on which machine, made a change.

A label is for people who read a history. It says nothing about rights: those follow from the user.
"""

from __future__ import annotations

import re
from functools import lru_cache

_MAX_SLUG_CHARS = 64
_NOT_SLUG = re.compile(r"[^a-z0-9._]+")


def writer_of(client_name: str, *, wanted: str, host: str, max_chars: int) -> str:
    """Return the label to write beside a change.

    Args:
        client_name: What the client calls itself; empty if it does not.
        wanted: The label that the peer asked for; wins if it is not empty.
        host: The name of this machine.
        max_chars: Longer labels are cut.

    Returns:
        `wanted`, or `host/client`, or only `host` if the client does not say what it is.
    """
    if wanted:
        return wanted[:max_chars]
    client = slug(client_name)
    return (f"{host}/{client}" if client else host)[:max_chars]


@lru_cache(maxsize=256)
def slug(name: str) -> str:
    """Return `name` as a short label: `Claude Code` becomes `claude-code`. Empty if nothing is left."""
    return _NOT_SLUG.sub("-", name[:1000].lower()).strip("-._")[:_MAX_SLUG_CHARS].rstrip("-._")
