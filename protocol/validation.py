"""What makes a Python value a JSON value that the store can keep, and what it weighs.

The fast path never visits values one by one in Python: the C encoder writes the text, and types are
looked at level by level, all values of one nesting depth at a time. Only when something is wrong does
a slow walk look for the place, so that the message can name it. Nothing here recurses, however deep
the value is. Above it sit `documents` and `patches`.
"""

from __future__ import annotations

import json
import math
import sys
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from mcpstated.protocol.pointer import spell_pointer
from mcpstated.protocol.wording import name_type, quote

if TYPE_CHECKING:
    from mcpstated.protocol.limits import Limits

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
"""Write a value as compact JSON, in C. It raises builtin errors for a value that is not JSON."""

_CONTAINERS = frozenset({dict, list})
_KINDS = frozenset({dict, list, str, int, float, bool, type(None)})


class Weight(NamedTuple):
    """What a value adds to a document."""

    size_bytes: int
    """UTF-8 bytes of its compact JSON."""
    depth: int
    """Containers inside each other; 0 for a plain value."""


class Unfit(ValueError):
    """A value cannot be kept: `reason` is `too_deep` or `bad_value`, `text` says what is wrong and where."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


def weigh(value: object, limits: Limits) -> Weight:
    """Validate `value` fully and return its size and depth. The size limit is not looked at.

    Raises:
        Unfit: It holds a non-JSON type, a key that is not text, a number that is not finite or too
            long, a lone surrogate, or it is nested too deep.
    """
    try:
        size_bytes = utf8_length(encode(value))
    except (TypeError, ValueError, RecursionError):  # UnicodeEncodeError is a ValueError
        raise find_fault(value, limits) from None
    return Weight(size_bytes, depth_of(value, limits))


def utf8_length(text: str) -> int:
    """Return how many bytes `text` has in UTF-8.

    Raises:
        UnicodeEncodeError: It holds a lone surrogate.
    """
    return len(text) if text.isascii() else len(text.encode())


def depth_of(value: object, limits: Limits, *, is_parsed: bool = False) -> int:
    """Check types, keys, numbers and depth of `value` and return its depth. Text is not looked into.

    Args:
        value: Must not contain itself; the encoder finds that out.
        is_parsed: The value comes from the JSON decoder, so it can only be too deep or hold a number
            that the decoder took and the encoder would not. Otherwise it has been encoded before.

    Raises:
        Unfit: As `weigh` does.
    """
    depth = 0
    values: list[object] = [value]
    must_count_digits = _must_count_digits(limits)
    while True:
        kinds = set(map(type, values))
        if not is_parsed and not kinds <= _KINDS:
            raise find_fault(value, limits)
        if is_parsed and float in kinds and not _are_finite(values):
            raise find_fault(value, limits)
        if must_count_digits and int in kinds and not _are_short(values, limits):
            raise find_fault(value, limits)
        if kinds.isdisjoint(_CONTAINERS):
            return depth
        depth += 1
        if depth > limits.max_depth:
            raise find_fault(value, limits)
        dicts = [inner for inner in values if type(inner) is dict] if dict in kinds else []
        lists = [inner for inner in values if type(inner) is list] if list in kinds else []
        if not is_parsed and not set(map(type, chain.from_iterable(dicts))) <= {str}:
            raise find_fault(value, limits)
        values = [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(lists)]


def find_fault(value: object, limits: Limits) -> Unfit:
    """Return why `value` cannot be kept, and where. Called only when something is known to be wrong."""
    seen: set[int] = set()
    rest: list[tuple[object, _Place | None, int]] = [(value, None, 1)]
    while rest:
        inner, place, depth = rest.pop()
        if type(inner) is dict or type(inner) is list:
            if depth > limits.max_depth:
                return _too_deep(limits)
            if id(inner) in seen:
                continue
            seen.add(id(inner))
            if isinstance(inner, dict):
                for key in inner:
                    if fault := _fault_of_key(key):
                        return Unfit("bad_value", f"holds {fault}{_where(place)}")
                below = [(child, _Place(place, key), depth + 1) for key, child in inner.items()]
            else:
                below = [(child, _Place(place, index), depth + 1) for index, child in enumerate(inner)]
            rest.extend(reversed(below))
        elif fault := _fault_of_scalar(inner, limits):
            return Unfit("bad_value", f"holds {fault}{_where(place)}")
    return _too_deep(limits)  # only a value that contains itself has no fault in any of its parts


class _Place(NamedTuple):
    above: _Place | None
    name: str | int


def _where(place: _Place | None) -> str:
    if place is None:
        return ""
    names: list[str | int] = []
    while place is not None:
        names.append(place.name)
        place = place.above
    return f" at {quote(spell_pointer(reversed(names)))}"


def _too_deep(limits: Limits) -> Unfit:
    return Unfit("too_deep", f"is nested deeper than {limits.max_depth} levels")


def _fault_of_key(key: object) -> str | None:
    if type(key) is not str:
        return f"a key that is not text but {name_type(key)}"
    return "a lone surrogate (half of a character) in a key" if _has_lone_surrogate(key) else None


def _fault_of_scalar(value: object, limits: Limits) -> str | None:
    kind = type(value)
    if kind is str:
        return "a lone surrogate (half of a character)" if _has_lone_surrogate(str(value)) else None
    if kind not in _KINDS:
        return f"a value of the non-JSON type {kind.__name__}"
    if kind is float and not _are_finite([value]):
        return "a number that is not finite"
    if kind is int and not _are_short([value], limits):
        return f"an integer of more than {limits.max_integer_digits} digits"
    return None


def _has_lone_surrogate(text: str) -> bool:
    try:
        utf8_length(text)
    except UnicodeEncodeError:
        return True
    return False


def _are_finite(values: list[object]) -> bool:
    return all(map(math.isfinite, [value for value in values if type(value) is float]))


def _are_short(values: list[object], limits: Limits) -> bool:
    integers = [value for value in values if type(value) is int]
    bound = _first_too_long(limits.max_integer_digits)
    return -bound < min(integers) and max(integers) < bound


def _must_count_digits(limits: Limits) -> bool:
    """Return whether the interpreter itself lets longer integers through than the limit allows."""
    bound = sys.get_int_max_str_digits()
    return bound == 0 or bound > limits.max_integer_digits


@lru_cache(maxsize=4)
def _first_too_long(digits: int) -> int:
    return int(10**digits)
