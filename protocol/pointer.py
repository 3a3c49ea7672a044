"""Paths into a document: dotted (`profile.tags`) or JSON Pointer (`/profile/tags/0`, RFC 6901).

A path that begins with `/` is a pointer: it reaches list items and any key, with `~1` for a slash and
`~0` for a tilde. Any other path is dotted and walks through objects only. The empty path is the root.
Nothing is ever created on the way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.wording import list_keys, name_type, quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcpstated.protocol.documents import Json

Steps: TypeAlias = "list[str | int]"
"""Keys and indexes that lead from the root to a value."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_BAD_ESCAPE = re.compile(r"~(?![01])")


class NoSuchPath(LookupError):
    """The path leads nowhere in this document; the text names the deepest part that exists.

    `is_key_missing` is true if that part is an object, so that the path could be made to exist.
    """

    def __init__(self, text: str, *, is_key_missing: bool) -> None:
        super().__init__(text)
        self.text = text
        self.is_key_missing = is_key_missing


def parse_path(path: str) -> tuple[str, ...]:
    """Return the segments of a path; the root has none.

    Raises:
        InvalidInput: It is not text, or holds a `~` that is neither `~0` nor `~1`. Details: `field`.
    """
    if not isinstance(path, str):
        raise InvalidInput(f"path must be text, not {name_type(path)}.", field="path")
    if path == "":
        return ()
    if not path.startswith("/"):
        return tuple(path.split("."))
    segments = path[1:].split("/")
    if "~" in path:
        if _BAD_ESCAPE.search(path):
            raise InvalidInput(
                f"path {quote(path)} begins with a slash, so it is a JSON Pointer, and there a tilde is "
                "written ~0 and a slash inside a key ~1.",
                field="path",
            )
        segments = [segment.replace("~1", "/").replace("~0", "~") for segment in segments]
    return tuple(segments)


def spell_pointer(segments: Iterable[str | int]) -> str:
    """Return the JSON Pointer with these segments; none is the root, the empty text."""
    return "".join(f"/{str(segment).replace('~', '~0').replace('/', '~1')}" for segment in segments)


def trace(document: Json, path: str) -> tuple[Steps, Json]:
    """Return the keys and indexes that lead to `path`, and the value there.

    Raises:
        InvalidInput: As `parse_path` does.
        NoSuchPath: A segment does not exist.
    """
    is_pointer = path.startswith("/")
    steps: Steps = []
    value = document
    for segment in parse_path(path):
        if isinstance(value, dict) and segment in value:
            value = value[segment]
            steps.append(segment)
        elif (
            is_pointer
            and isinstance(value, list)
            and _INDEX.fullmatch(segment)
            and (index := int(segment)) < len(value)
        ):
            value = value[index]
            steps.append(index)
        else:
            text = _dead_end(value, steps, segment, is_pointer=is_pointer)
            raise NoSuchPath(text, is_key_missing=isinstance(value, dict))
    return steps, value


def resolve(document: Json, path: str) -> Json:
    """Return the value at `path`.

    Raises:
        InvalidInput: The path is malformed or leads nowhere; the message names the deepest part that
            exists and what is in it. Details: `field`.
    """
    try:
        return trace(document, path)[1]
    except NoSuchPath as missing:
        raise InvalidInput(f"path {quote(path)} does not exist: {missing.text}.", field="path") from None


def _dead_end(value: Json, steps: Steps, segment: str, *, is_pointer: bool) -> str:
    where = quote(spell_pointer(steps) if is_pointer else ".".join(map(str, steps))) if steps else "the root"
    if isinstance(value, dict):
        if not value:
            return f"{where} is an empty object"
        return f"{where} has no key {quote(segment)}; its keys are {list_keys(value)}"
    if isinstance(value, list):
        size = (
            f"{where} is a list of {len(value)} items" if len(value) != 1 else f"{where} is a list of 1 item"
        )
        if not is_pointer:
            return (
                f"{size}; reach its items by a path with slashes, such as {quote(spell_pointer([*steps, 0]))}"
            )
        if not value:
            return f"{size} and has no item {quote(segment)}"
        numbers = f"numbered 0 to {len(value) - 1}" if len(value) > 1 else "number 0"
        return f"{size}, {numbers}, and has no item {quote(segment)}"
    return f"{where} holds {name_type(value)}, which has no parts"
