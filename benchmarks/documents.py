"""The documents and calls of the measures."""

from __future__ import annotations

import json
from typing import Any

ITEM = "0123456789" * 10
"""The 100 bytes that are appended."""
LIST = "items"


def document(size_bytes: int, *, item_bytes: int = 100) -> dict[str, Any]:
    """Return a document of about that many bytes of JSON: a list of equal strings."""
    item = "x" * item_bytes
    document: dict[str, Any] = {"title": "A document of the benchmark", LIST: []}
    room = size_bytes - len(json.dumps(document, separators=(",", ":")))
    document[LIST] = [item] * max(0, room // (item_bytes + 3))
    return document


def mint(size_bytes: int, *, item_bytes: int = 100) -> dict[str, Any]:
    """Return the arguments of a state_save that makes a handle."""
    return {"kind": "bench", "state": document(size_bytes, item_bytes=item_bytes)}


def append(handle: str, value: Any = ITEM) -> dict[str, Any]:
    """Return the arguments of a state_patch that appends one value."""
    return {"handle": handle, "ops": [{"op": "append", "path": LIST, "value": value}]}
