"""Making a value that others chose fit a bound, with visible marks where something was cut.

For errors only. A document that somebody may merge from and save again is shown whole or not at all,
because a cut that was taken for content would be stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcpstated.protocol import documents

_STEPS = ((4_000, 100), (1_000, 40), (200, 15), (60, 5))
"""Characters of a text and members of a list or object, tried one after the other."""
_MAX_DEPTH = 6
_WHOLE_OR_NOT = "state"


def fit(payload: Mapping[str, object], max_bytes: int) -> dict[str, object]:
    """Return `payload` as JSON that can be encoded and has at most `max_bytes`.

    What fits is returned as it is. What does not loses documents first (members named `state`), then
    the ends of long texts and lists, in the end every field that is no plain value.
    """
    if _is_fitting(payload, max_bytes):
        return dict(payload)
    for max_chars, max_members in _STEPS:
        cut = {key: _cut(value, max_chars, max_members, _MAX_DEPTH) for key, value in payload.items()}
        if _is_fitting(cut, max_bytes):
            return cut
    return {key: value for key, value in cut.items() if not isinstance(value, dict | list)}


def cut_text(text: str, max_chars: int) -> str:
    """Return `text` encodable in UTF-8 and about so long at most; a cut is marked."""
    if len(text) > max_chars:
        text = f"{text[:max_chars]}… ({len(text)} characters)"
    return text.encode("utf-8", "replace").decode()


def _is_fitting(value: object, max_bytes: int) -> bool:
    try:
        return documents.size_of(value) <= max_bytes  # type: ignore[arg-type]  # whatever is no JSON raises
    except (
        TypeError,
        ValueError,
        RecursionError,
    ):  # a lone surrogate raises UnicodeEncodeError, a ValueError
        return False


def _cut(value: object, max_chars: int, max_members: int, depth: int) -> object:
    if isinstance(value, str):
        return cut_text(value, max_chars)
    if isinstance(value, Mapping):
        if depth == 0:
            return f"… ({len(value)} keys)"
        members: dict[str, object] = {
            cut_text(str(key), max_chars): _cut(below, max_chars, max_members, depth - 1)
            for key, below in list(value.items())[:max_members]
            if key != _WHOLE_OR_NOT
        }
        if len(value) > max_members:
            members["…"] = f"{len(value) - max_members} more"
        return members
    if isinstance(value, list | tuple):
        if depth == 0:
            return f"… ({len(value)} items)"
        items = [_cut(below, max_chars, max_members, depth - 1) for below in value[:max_members]]
        return [*items, f"… {len(value) - max_members} more"] if len(value) > max_members else items
    is_plain = value is None or isinstance(value, bool | int | float)
    return value if is_plain and _is_fitting(value, max_chars) else "…"
