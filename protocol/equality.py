"""When two JSON values are the same, which Python's own `==` does not tell.

`==` says that 1, 1.0 and true are equal, and 0.0 and -0.0 too, and never looks at the order of keys.
Values that differ for `==` differ here as well, so it goes first, in C; what it calls equal is then
looked at level by level, all values of one nesting depth at a time, leaving out the parts that both
values share. Both functions trust their arguments to be valid.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcpstated.protocol.documents import Json

_T = TypeVar("_T")
_C = TypeVar("_C", dict[str, "Json"], list["Json"])


def same(a: Json, b: Json) -> bool:
    """Return whether two values are equal as JSON: the same types and numbers, in any order of keys."""
    return a is b or (a == b and _agree(a, b, is_order_kept=False))


def is_identical(a: Json, b: Json) -> bool:
    """Return whether two values have the same JSON text: the order of keys counts too."""
    return a is b or (a == b and _agree(a, b, is_order_kept=True))


def _agree(a: Json, b: Json, *, is_order_kept: bool) -> bool:
    """Compare types, signs of zeros and order of values that are equal for Python."""
    lefts: list[Json] = [a]
    rights: list[Json] = [b]
    while lefts:
        kinds = list(map(type, lefts))
        if kinds != list(map(type, rights)):
            return False
        present = set(kinds)
        if float in present and _signs(lefts) != _signs(rights):
            return False
        dicts = _unshared(dict, lefts, rights) if dict in present else []
        lists = _unshared(list, lefts, rights) if list in present else []
        # Equal dicts have equally many keys, so the keys of all of them in one row tell about each.
        is_in_order = _row(left for left, _ in dicts) == _row(right for _, right in dicts)
        if not is_in_order and is_order_kept:
            return False
        lefts = [value for left, _ in dicts for value in left.values()]
        rights = (
            [value for _, right in dicts for value in right.values()]
            if is_in_order
            else [right[key] for left, right in dicts for key in left]
        )
        lefts += _row(left for left, _ in lists)
        rights += _row(right for _, right in lists)
    return True


def _unshared(kind: type[_C], lefts: list[Json], rights: list[Json]) -> list[tuple[_C, _C]]:
    return [
        (left, cast("_C", right))
        for left, right in zip(lefts, rights, strict=True)
        if isinstance(left, kind) and left is not right
    ]


def _row(containers: Iterable[Iterable[_T]]) -> list[_T]:
    return list(chain.from_iterable(containers))


def _signs(values: list[Json]) -> list[float]:
    return [math.copysign(1.0, value) for value in values if isinstance(value, float)]
