"""Answering a line that was too long to be taken, under its own id: a client waits for that one only.

Imported when there is such a line. Only the two ends of it are known, and the id of a JSON-RPC request
stands in one of them, before the parameters or after.
"""

from __future__ import annotations

import json
import re

_LEXEMES = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')
_INVALID_REQUEST = -32600


def answer_to_skipped(head: bytes, tail: bytes, max_line_bytes: int) -> bytes:
    """Return the line that refuses a line of which these are the ends."""
    text = f"A line of more than {max_line_bytes} bytes was skipped: that is the most that can be taken."
    error = {"code": _INVALID_REQUEST, "message": text}
    id_ = _id_in_head(head)
    if id_ is None:
        id_ = _id_in_tail(tail)
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": error}, separators=(",", ":")).encode("ascii")


def _id_in_head(head: bytes) -> str | int | None:
    """Return the member `id` of the outermost object, if it begins and ends in here."""
    depth = 0
    before: tuple[bytes, bytes] = (b"", b"")
    value: bytes | None = None
    for match in _LEXEMES.finditer(head):
        lexeme = match.group()
        if value is not None:  # whole only if something comes after it
            return _usable(value)
        if lexeme in (b"[", b"{"):
            depth += 1
        elif lexeme in (b"]", b"}"):
            depth -= 1
        elif depth == 1 and before == (b'"id"', b":"):
            value = lexeme
        before = (before[1], lexeme)
    return None


def _id_in_tail(tail: bytes) -> str | int | None:
    """Return the member `id` of the outermost object, if it is one of its last members.

    From there to the end the tail is the rest of that object, so with a brace before it it can be parsed;
    an `id` further inside leaves braces too many.
    """
    start = tail.rfind(b'"id"')
    if start < 0:
        return None
    try:
        rest = json.loads(b"{" + tail[start:])
    except (ValueError, RecursionError):
        return None
    return _checked(rest.get("id"))


def _usable(lexeme: bytes) -> str | int | None:
    try:
        return _checked(json.loads(lexeme))
    except ValueError:
        return None


def _checked(value: object) -> str | int | None:
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None
