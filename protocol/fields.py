"""Checks of the small arguments: kind, handle, title, writer, user, time to live, limit, version.

Each returns the value to use or raises `InvalidInput` with the field and the range that it allows.
Types are strict here (true is no number, "3" is no version); leniency belongs to the surface.
"""

from __future__ import annotations

import re

from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.wording import name_type, quote

MAX_HANDLE_CHARS = 200
MAX_VERSION = 2**63 - 1

_DEFAULTS = Limits()
_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_kind(kind: object) -> str:
    """Return a kind: 1 to 32 lower-case letters, digits and hyphens, a letter first."""
    text = _text(kind, "kind")
    if not _KIND.fullmatch(text):
        raise InvalidInput(
            f"kind must be 1 to 32 lower-case letters, digits or hyphens, a letter first; got {quote(text)}.",
            field="kind",
        )
    return text


def check_handle(handle: object) -> str:
    """Return any text that could be a handle; whether it exists is another question."""
    return _line(handle, "handle", 1, MAX_HANDLE_CHARS)


def check_title(title: object, limits: Limits = _DEFAULTS) -> str | None:
    """Return a title; None and the empty text are no title."""
    return None if title is None else _line(title, "title", 0, limits.max_title_chars) or None


def check_writer(writer: object, limits: Limits = _DEFAULTS) -> str:
    """Return a writer's label, which may be empty."""
    return _line(writer, "writer", 0, limits.max_writer_chars)


def check_user(user: object, limits: Limits = _DEFAULTS) -> str:
    """Return a user's name, compared by its exact code points: there is no normalisation."""
    text = _line(user, "user", 1, limits.max_user_chars)
    if text != text.strip():
        raise InvalidInput("user must not begin or end with white space.", field="user")
    return text


def check_request_key(request_key: object, limits: Limits = _DEFAULTS) -> str:
    """Return the name that a caller gives to one write."""
    return _line(request_key, "request_key", 1, limits.max_request_key_chars)


def check_ttl_days(ttl_days: object, limits: Limits = _DEFAULTS, field: str = "ttl_days") -> float | None:
    """Return a time to live in days; None is for ever. However short it is, it is taken as it is."""
    if ttl_days is None:
        return None
    range_text = f"{field} must be a number of days above 0 and at most {limits.max_ttl_days:g}"
    if type(ttl_days) is not int and type(ttl_days) is not float:
        raise InvalidInput(f"{range_text}, not {name_type(ttl_days)}.", field=field)
    if not 0 < ttl_days <= limits.max_ttl_days:  # false for NaN as well
        raise InvalidInput(f"{range_text}.", field=field)
    return float(ttl_days)


def check_limit(limit: object, limits: Limits = _DEFAULTS) -> int:
    """Return how many handles one page may hold."""
    return _integer(limit, "limit", 1, limits.max_list_page)


def check_version(version: object, field: str = "version") -> int:
    """Return a version number. 0 is a number that no handle ever has, not an error."""
    return _integer(version, field, 0, MAX_VERSION)


def _integer(value: object, field: str, least: int, most: int) -> int:
    if type(value) is not int:
        raise InvalidInput(
            f"{field} must be an integer from {least} to {most}, not {name_type(value)}.", field=field
        )
    if not least <= value <= most:
        raise InvalidInput(f"{field} must be an integer from {least} to {most}.", field=field)
    return value


def _text(value: object, field: str) -> str:
    if type(value) is not str:
        raise InvalidInput(f"{field} must be text, not {name_type(value)}.", field=field)
    return value


def _line(value: object, field: str, least: int, most: int) -> str:
    text = _text(value, field)
    if not least <= len(text) <= most:
        raise InvalidInput(f"{field} must have {least} to {most} characters, got {len(text)}.", field=field)
    if _UNPRINTABLE.search(text):
        raise InvalidInput(
            f"{field} must not hold control characters, line breaks or half characters.", field=field
        )
    return text
