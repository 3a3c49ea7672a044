"""The operations that lead from one document to another, when they are shorter than the document.

A save is stored this way, so that history stays legible and small. Applied to the old document they
give the new one exactly: number types and key order too.

Objects: the longest run of leading keys of the new object that stand in the same order in the old one
stays; every other old key is deleted and every other new key is set, in order. Worked example:

    old {"a": 1, "b": 2, "c": {"x": 1}}      new {"a": 1, "c": {"x": 2}, "d": 5}
    a and c stay: del_key b, set_key d to 5, and inside c: set_key x to 2

Lists: no operation removes or inserts an item, so items are compared place by place and new ones are
appended; a list that became shorter, or that changed all over, is replaced whole.
"""

from __future__ import annotations

from typing import TypeAlias, cast

from mcpstated.protocol.documents import Document, Json, is_identical, size_of
from mcpstated.protocol.operations import Append, DelKey, Operation, Replace, SetKey, operations_to_log
from mcpstated.protocol.pointer import spell_pointer

MOST_OPERATIONS = 256
"""More would not be legible, and slow to replay: the document is stored whole then."""
DEEPEST_LEVEL = 8
"""Below it a member is replaced whole: each level costs a comparison of everything in it."""
_BLOCK = 256
_FEW_ITEMS = 8
"""So many items of a list may change however short the list is."""

_Segments: TypeAlias = "tuple[str | int, ...]"


def difference(
    old: Document, new: Document, *, size_bytes: int | None = None
) -> tuple[Operation, ...] | None:
    """Return operations that turn `old` into `new` exactly; an empty tuple if they are identical.

    Args:
        old: A valid document.
        new: A valid document. The operations share its values.
        size_bytes: The size of `new`, if it is known.

    Returns:
        None if the operations would be too many, or not smaller than `new`.
    """
    operations: list[Operation] = []
    rest: list[tuple[_Segments, Json, Json]] = [((), old, new)]
    while rest:
        segments, was, becomes = rest.pop()
        if isinstance(was, dict) and isinstance(becomes, dict):
            rest.extend(_compare_objects(segments, was, becomes, operations))
        elif isinstance(was, list) and isinstance(becomes, list):
            rest.extend(_compare_lists(segments, was, becomes, operations))
        if len(operations) + len(rest) > MOST_OPERATIONS:
            return None
    if not operations:
        return ()
    if size_bytes is None:
        size_bytes = size_of(new)
    if size_of(cast("Json", operations_to_log(operations))) >= size_bytes:
        return None
    return tuple(operations)


def _compare_objects(
    segments: _Segments, old: dict[str, Json], new: dict[str, Json], operations: list[Operation]
) -> list[tuple[_Segments, Json, Json]]:
    path = spell_pointer(segments)
    kept = _leading_keys(old, new)
    operations.extend(DelKey(path, key) for key in old if key not in kept)
    operations.extend(SetKey(path, key, value) for key, value in new.items() if key not in kept)
    deeper: list[tuple[_Segments, Json, Json]] = []
    names = list(kept)
    for place in _differing([old[key] for key in names], [new[key] for key in names], MOST_OPERATIONS):
        key = names[place]
        was, becomes = old[key], new[key]
        if _are_comparable(segments, was, becomes):
            deeper.append(((*segments, key), was, becomes))
        elif was == becomes:  # set_key would see no change where only order or number types differ
            operations.append(Replace(spell_pointer((*segments, key)), becomes))
        else:
            operations.append(SetKey(path, key, becomes))
    return deeper


def _compare_lists(
    segments: _Segments, old: list[Json], new: list[Json], operations: list[Operation]
) -> list[tuple[_Segments, Json, Json]]:
    path = spell_pointer(segments)
    most = max(_FEW_ITEMS, min(len(old) // 2, MOST_OPERATIONS))
    changed = _differing(old, new[: len(old)], most) if len(new) >= len(old) else []
    if len(new) < len(old) or len(changed) > most:
        operations.append(Replace(path, new))
        return []
    deeper: list[tuple[_Segments, Json, Json]] = []
    for index in changed:
        was, becomes = old[index], new[index]
        if _are_comparable(segments, was, becomes):
            deeper.append(((*segments, index), was, becomes))
        else:
            operations.append(Replace(spell_pointer((*segments, index)), becomes))
    operations.extend(Append(path, value) for value in new[len(old) :])
    return deeper


def _leading_keys(old: dict[str, Json], new: dict[str, Json]) -> dict[str, None]:
    """Return the keys that stay where they are; a dict for its order and its quick look-up."""
    places = {key: place for place, key in enumerate(old)}
    kept: dict[str, None] = {}
    last = -1
    for key in new:
        place = places.get(key, -1)
        if place <= last:
            break
        kept[key] = None
        last = place
    return kept


def _are_comparable(segments: _Segments, was: Json, becomes: Json) -> bool:
    return (
        len(segments) < DEEPEST_LEVEL
        and type(was) is type(becomes)
        and isinstance(was, dict | list)
        and bool(was)
        and bool(becomes)
    )


def _differing(old: list[Json], new: list[Json], most: int) -> list[int]:
    """Return the places whose values are not identical, or just more than `most` of them.

    Blocks are compared in C; only in a block that differs is each value looked at.
    """
    differing: list[int] = []
    for start in range(0, len(old), _BLOCK):
        was, becomes = old[start : start + _BLOCK], new[start : start + _BLOCK]
        if is_identical(was, becomes):
            continue
        differing.extend(start + i for i in range(len(was)) if not is_identical(was[i], becomes[i]))
        if len(differing) > most:
            break
    return differing
