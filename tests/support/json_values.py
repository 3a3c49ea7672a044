"""Hypothesis strategies for JSON values, documents, and patch operations that may or may not fit them."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from mcpstated.protocol.patches import Append, DelKey, Merge, Operation, SetKey
from mcpstated.protocol.pointer import spell_pointer

AWKWARD_KEYS = ["a", "b", "a.b", "a/b", "~1", "~", "", "0", "-", "é", "e\u0301", "\x00", "\u2028"]
"""Keys that path syntaxes trip over (few, so that two documents often share some)."""

keys = st.sampled_from(AWKWARD_KEYS)
scalars = (
    st.sampled_from([None, True, False, 0, 0.0, -0.0, 1, 1.0, 10**30, -(10**4299), "", "a", "0"])
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)
documents = st.dictionaries(keys, values, max_size=4)


def places(document: dict[str, Any]) -> list[tuple[tuple[str | int, ...], Any]]:
    """Return every value of a document with the keys and indexes that lead to it, the root first."""
    found: list[tuple[tuple[str | int, ...], Any]] = [((), document)]
    for steps, value in found:
        if isinstance(value, dict):
            found.extend(((*steps, key), inner) for key, inner in value.items())
        elif isinstance(value, list):
            found.extend(((*steps, index), inner) for index, inner in enumerate(value))
    return found


@st.composite
def operations_for(draw: st.DrawFn, document: dict[str, Any]) -> list[Operation]:
    """Draw operations on containers of `document`; an earlier one may take a later one's target away."""
    containers = [(steps, value) for steps, value in places(document) if isinstance(value, dict | list)]
    operations: list[Operation] = []
    for _ in range(draw(st.integers(0, 5))):
        steps, container = draw(st.sampled_from(containers))
        path = spell_pointer(steps)
        if isinstance(container, list):
            operations.append(Append(path, draw(values)))
            continue
        key = draw(st.sampled_from([*container, "new"]) | keys)
        operations.append(
            draw(
                st.builds(SetKey, st.just(path), st.just(key), values)
                | st.just(DelKey(path, key))
                | st.builds(Merge, st.dictionaries(keys, values, max_size=3), st.just(path))
            )
        )
    return operations


@st.composite
def edited(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """Draw a document that differs from `document` in a few places, as a client's save would."""
    result = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, 4))):
        _, container = draw(st.sampled_from([p for p in places(result) if isinstance(p[1], dict | list)]))
        if isinstance(container, list):
            _edit_list(draw, container)
        else:
            _edit_object(draw, container)
    return result


def _edit_list(draw: st.DrawFn, items: list[Any]) -> None:
    act = draw(st.sampled_from(["append", "insert", "pop", "set"]))
    if act == "append" or not items:
        items.append(draw(values))
        return
    index = draw(st.integers(0, len(items) - 1))
    if act == "insert":
        items.insert(index, draw(values))
    elif act == "pop":
        items.pop(index)
    else:
        items[index] = draw(values)


def _edit_object(draw: st.DrawFn, members: dict[str, Any]) -> None:
    act = draw(st.sampled_from(["set", "delete", "move to the end", "reorder"]))
    if act == "set" or not members:
        members[draw(keys)] = draw(values)
        return
    key = draw(st.sampled_from(list(members)))
    value = members.pop(key)
    if act == "move to the end":
        members[key] = value
    elif act == "reorder":
        rest = list(members.items())
        members.clear()
        members[key] = value
        members.update(rest)
