"""Pages of a list: the cursor, and the words of a query.

A page ends at a revision and the next one begins below it, so changes made meanwhile neither hide nor
repeat a handle that stays as it is. The cursor carries that revision and a check of what it was made
for: a cursor of another list, user or filter is refused and not silently misread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct

from mcpstated.protocol.errors import InvalidInput

MAX_QUERY_CHARS = 1_000
MAX_QUERY_WORDS = 32

_CURSOR = struct.Struct(">BQ8s")
_FORMAT = 1
_MAX_CURSOR_CHARS = 64


def words_of(query: str | None) -> tuple[str, ...]:
    """Return the words that must all occur, in the form that they are stored in.

    Raises:
        InvalidInput: It is too long.
    """
    if query is None:
        return ()
    if type(query) is not str or len(query) > MAX_QUERY_CHARS:
        raise InvalidInput(f"query must be text of at most {MAX_QUERY_CHARS} characters.", field="query")
    words = tuple(dict.fromkeys(query.casefold().split()))
    if len(words) > MAX_QUERY_WORDS:
        raise InvalidInput(f"query must have at most {MAX_QUERY_WORDS} words.", field="query")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise InvalidInput("query holds a lone surrogate (half of a character).", field="query") from None
    return words


def write_cursor(before: int, *filters: str | None | tuple[str, ...]) -> str:
    """Return the cursor for what comes below a revision in the list with these filters."""
    packed = _CURSOR.pack(_FORMAT, before, _check(filters))
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def read_cursor(cursor: str | None, *filters: str | None | tuple[str, ...]) -> int | None:
    """Return the revision that the page must stay below; None for the first page.

    Raises:
        InvalidInput: It is no cursor, or not one of this list.
    """
    if cursor is None:
        return None
    try:
        if type(cursor) is not str or len(cursor) > _MAX_CURSOR_CHARS:
            raise ValueError
        packed = base64.b64decode(
            cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True
        )
        form, before, check = _CURSOR.unpack(packed)
        if form != _FORMAT:
            raise ValueError
    except (ValueError, binascii.Error, struct.error):
        raise InvalidInput(
            "cursor is not one that a list returned. Leave it out to begin with the first page.",
            field="cursor",
        ) from None
    if check != _check(filters):
        raise InvalidInput(
            "cursor belongs to another list: kind and query must be those that it was returned for. "
            "Leave it out to begin with the first page.",
            field="cursor",
        )
    return int(before)


def _check(filters: tuple[object, ...]) -> bytes:
    return hashlib.blake2b(json.dumps(filters).encode(), digest_size=8).digest()
