"""The shape of a document without its content: one line for lists, a bounded table for big documents.

`summary` is stored with every version, so it looks at the top level only. `outline` goes in place of
a document that is too big for a reply, and names paths that can be loaded by themselves.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import islice
from typing import TypeAlias

from mcpstated.protocol.documents import Document, Json, size_of
from mcpstated.protocol.pointer import spell_pointer
from mcpstated.protocol.validation import encode
from mcpstated.protocol.wording import json_type, printable

SUMMARY_CHARS = 300
DEEPEST_LEVEL = 4
_SUMMARY_KEY_CHARS = 40
_LARGEST_SHOWN = 10**15
_LISTED_ITEMS = 3
_LISTED_KEYS = 12
_SHORT_BYTES = 48
_SMALLEST_PART_BYTES = 48

_Segments: TypeAlias = "tuple[str | int, ...]"


def summary(document: Document) -> str:
    """Return the top-level keys with type and length on one line of at most 300 characters.

    Example: `title: text(32), sources: list(12), profile: object(3), done: true`.
    """
    parts: list[str] = []
    room = SUMMARY_CHARS
    for number, (key, value) in enumerate(document.items()):
        part = f"{printable(key, _SUMMARY_KEY_CHARS)}: {_brief(value)}"
        more = f"and {len(document) - number} more"
        is_last = number == len(document) - 1
        if len(part) > room or (not is_last and len(part) + 2 + len(more) > room):
            parts.append(more)
            break
        parts.append(part)
        room -= len(part) + 2
    return ", ".join(parts)


def outline(
    document: Document, *, budget_bytes: int = 4096, size_bytes: int | None = None
) -> dict[str, Json]:
    """Return the shape of a document, ready to be put into a reply.

    Top-level members come first, in their order; then, biggest first, what is inside them: the first
    members of objects and the first items of lists, four levels down, until the budget is used up.

    Args:
        budget_bytes: The most bytes that the result takes as JSON (what is around `parts` always comes).
        size_bytes: The size of the document, if it is known.

    Returns:
        `size_bytes` and `keys` of the document; `parts`, a list of `path` (a JSON Pointer), `type`,
        `size_bytes`, `keys`, `items` or `chars`, and the `value` itself where it is plain and short;
        `omitted_keys`, the number of top-level keys that found no room.
    """
    parts: list[Json] = []
    result: dict[str, Json] = {
        "size_bytes": size_of(document) if size_bytes is None else size_bytes,
        "keys": len(document),
        "parts": parts,
        "omitted_keys": len(document),
    }
    room = budget_bytes - size_of(result)
    omitted = len(document)
    heap: list[tuple[int, int, _Segments, Json]] = [(0, 0, (), document)]
    while heap and room > 0:
        _, _, above, container = heapq.heappop(heap)
        for name, value in _members(container, everything=not above):
            segments = (*above, name)
            part, weight = _part(segments, value)
            cost = size_of(part) + 1
            if cost > room:
                if room < _SMALLEST_PART_BYTES:
                    break
                continue
            room -= cost
            parts.append(part)
            omitted -= not above
            if isinstance(value, dict | list) and len(segments) < DEEPEST_LEVEL:
                heapq.heappush(heap, (-weight, len(parts), segments, value))
    result["omitted_keys"] = omitted
    return result


def _members(container: Json, *, everything: bool) -> Iterable[tuple[str | int, Json]]:
    if isinstance(container, dict):
        return islice(container.items(), None if everything else _LISTED_KEYS)
    if isinstance(container, list):
        return islice(enumerate(container), _LISTED_ITEMS)
    return ()


def _part(segments: _Segments, value: Json) -> tuple[dict[str, Json], int]:
    size_bytes = size_of(value)
    part: dict[str, Json] = {
        "path": spell_pointer(segments),
        "type": json_type(value),
        "size_bytes": size_bytes,
    }
    if isinstance(value, dict):
        part["keys"] = len(value)
    elif isinstance(value, list):
        part["items"] = len(value)
    elif isinstance(value, str):
        part["chars"] = len(value)
    if not isinstance(value, dict | list) and size_bytes <= _SHORT_BYTES:
        part["value"] = value
    return part, size_bytes


def _brief(value: Json) -> str:
    kind = json_type(value)
    if isinstance(value, str | list | dict):
        return f"{kind}({len(value)})"
    if isinstance(value, int) and abs(value) > _LARGEST_SHOWN:
        return kind
    return encode(value)
