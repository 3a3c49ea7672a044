"""Bounded, printable phrases about JSON values for error messages.

Whatever a caller sends may be quoted back to it, so every phrase has a length limit and can always be
encoded.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

QUOTED_CHARS = 60
LISTED_KEYS = 20
_LISTED_CHARS = 400

_JSON_NAMES: dict[type, str] = {
    dict: "object",
    list: "list",
    str: "text",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
}


def json_type(value: object) -> str:
    """Return what JSON calls the type of `value`: object, list, text, number, boolean or null."""
    return _JSON_NAMES.get(type(value), type(value).__name__)


def name_type(value: object) -> str:
    """Return the type of `value` with its article, as it stands in a sentence: an object, a list, text."""
    name = json_type(value)
    article = {"object": "an ", "list": "a ", "number": "a ", "boolean": "a "}
    return article.get(name, "") + name


def printable(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`; lone surrogates and control characters become escapes."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() or c == " " else ascii(c)[1:-1] for c in cut)


def quote(text: str) -> str:
    """Return `text` in double quotes, shortened."""
    return f'"{printable(text, QUOTED_CHARS)}"'


def list_keys(keys: Collection[str]) -> str:
    """Return the first keys, quoted, and how many more there are: `"a", "b" and 7 more`."""
    named: list[str] = []
    room = _LISTED_CHARS
    for key in islice(keys, LISTED_KEYS):
        phrase = quote(key)
        room -= len(phrase) + 2
        if room < 0 and named:
            break
        named.append(phrase)
    more = len(keys) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
