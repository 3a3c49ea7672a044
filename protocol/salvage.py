"""What can be learnt from the two ends of a line that nobody parses whole: its id and its method.

A client waits for the answer to its own id only, so a line that is refused for its size or its depth is
answered under it. Members of a JSON-RPC message stand before its parameters or after them, hence at one of
the ends. Imported when there is such a line: by the shim in place of the daemon, and by the daemon.
"""

from __future__ import annotations

import json
import re

ENDS_BYTES = 4096
"""How much of each end is looked at."""
_LEXEMES = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
"""A string without an end is one lexeme, or each of the quotes in it would be tried as a beginning."""


def salvage(head: bytes, tail: bytes) -> tuple[str | int | None, str]:
    """Return the id and the method of the outermost object, None and "" where they are not to be found.

    Args:
        head: The first bytes of the line.
        tail: The last ones; the two may overlap, and be the whole line.
    """
    found = {**_members_of_tail(tail), **_members_of_head(head)}
    id_, method = found.get("id"), found.get("method")
    return (id_ if type(id_) is str or type(id_) is int else None), (
        method if isinstance(method, str) else ""
    )


def _members_of_head(head: bytes) -> dict[str, object]:
    """Return those of the two members that begin and end in here.

    Walks lexemes, not the structure, so depth does not matter. Example: in `{"a":[[[[...]]]],"id":7,` the
    depth is back at 1 when `"id"` `:` `7` come by. That something follows shows that it is all of the 7.
    """
    found: dict[str, object] = {}
    depth = 0
    before: tuple[bytes, bytes, bytes] = (b"", b"", b"")
    for match in _LEXEMES.finditer(head):
        lexeme = match.group()
        if depth == 1 and before[0] in (b'"id"', b'"method"') and before[1] == b":":
            _note(found, before[0], before[2])
        if lexeme in (b"[", b"{"):
            depth += 1
        elif lexeme in (b"]", b"}"):
            depth -= 1
        before = (before[1], before[2], lexeme)
    return found


def _members_of_tail(tail: bytes) -> dict[str, object]:
    """Return those of the two members that are among the last ones of the outermost object.

    From there to the end the tail is the rest of that object, so with a brace before it it can be parsed; a
    member of that name further inside leaves braces too many.
    """
    found: dict[str, object] = {}
    for name in (b'"id"', b'"method"'):
        start = tail.rfind(name)
        if start < 0:
            continue
        try:
            rest = json.loads(b"{" + tail[start:])
        except (ValueError, RecursionError):
            continue
        found.update({key: rest[key] for key in ("id", "method") if key in rest})
    return found


def _note(found: dict[str, object], name: bytes, lexeme: bytes) -> None:
    try:
        found[name.decode().strip('"')] = json.loads(lexeme.decode())
    except ValueError:
        return
