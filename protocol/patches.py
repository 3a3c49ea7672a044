"""Patches: a few operations applied to a document, all of them or none, at the cost of what they change.

Documents are never mutated. A patch copies the containers on its paths, each once, and shares all the
rest with the document before; sizes are kept by adding and subtracting. Values of operations become
part of the document as they are, so nobody may change them afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from mcpstated.protocol.documents import Document, Json, is_identical, raise_too_large, same, size_of
from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.operations import (
    Append,
    DelKey,
    Merge,
    Misfit,
    Operation,
    Replace,
    SetKey,
    operations_from_log,
    operations_from_wire,
    operations_to_log,
    operations_to_wire,
    patch_error,
)
from mcpstated.protocol.pointer import NoSuchPath, Steps, trace
from mcpstated.protocol.store import Touched
from mcpstated.protocol.validation import Unfit, weigh
from mcpstated.protocol.wording import name_type, quote

__all__ = [
    "Append",
    "DelKey",
    "Merge",
    "Operation",
    "Patched",
    "Replace",
    "SetKey",
    "apply",
    "operations_from_log",
    "operations_from_wire",
    "operations_to_log",
    "operations_to_wire",
    "replay",
]

_UNBOUNDED = Limits(max_state_bytes=sys.maxsize, max_depth=sys.maxsize, max_operations=sys.maxsize)


@dataclass(frozen=True, slots=True)
class Patched:
    """The outcome of a patch."""

    document: Document
    """The document that was handed in, if nothing changed."""
    size_bytes: int
    is_changed: bool
    touched: tuple[Touched, ...]
    """One per operation, in order."""
    effective: tuple[Operation, ...]
    """What did change something, narrowed to that: applied to the old document it gives the new one."""


def apply(document: Document, size_bytes: int, operations: Sequence[Operation], *, limits: Limits) -> Patched:
    """Apply all operations in order, or none.

    Args:
        document: A valid document; it is not mutated.
        size_bytes: Its size, as `documents.size_of` gives it.

    Raises:
        PatchError: An operation does not fit. Details: `index`, `op`, `path`, `reason`: path_not_found,
            bad_path, expected_list, expected_object, too_deep, bad_value.
        StateTooLarge: The document grew, and beyond the limit. One that shrinks is always taken.
        InvalidInput: There are too many operations.
    """
    if len(operations) > limits.max_operations:
        raise InvalidInput(
            f"ops has {len(operations)} operations; one patch may have at most {limits.max_operations}.",
            field="ops",
        )
    draft = _Draft(document, size_bytes, limits)
    touched: list[Touched] = []
    effective: list[Operation] = []
    for index, operation in enumerate(operations):
        try:
            done, length = draft.apply(operation)
        except Misfit as misfit:
            raise patch_error(index, operation.OP, operation.path, misfit) from None
        touched.append(Touched(operation.OP, operation.path, length))
        if done is not None:
            effective.append(done)
    if draft.size_bytes > max(limits.max_state_bytes, size_bytes):
        raise_too_large(draft.size_bytes, limits)
    is_changed = bool(effective)
    if len(effective) > 1 and draft.size_bytes == size_bytes:
        is_changed = not is_identical(document, draft.root)  # one operation may have undone another
    if not is_changed:
        return Patched(document, size_bytes, is_changed=False, touched=tuple(touched), effective=())
    return Patched(
        draft.root, draft.size_bytes, is_changed=True, touched=tuple(touched), effective=tuple(effective)
    )


def replay(document: Document, size_bytes: int, operations: Sequence[Operation]) -> tuple[Document, int]:
    """Return document and size after operations that were accepted before, whatever the limits are now.

    Raises:
        PatchError: They were not made for this document.
    """
    patched = apply(document, size_bytes, operations, limits=_UNBOUNDED)
    return patched.document, patched.size_bytes


class _Draft:
    """A document that is being changed: the containers in `_owned` are ours and may be written to."""

    __slots__ = ("_limits", "_owned", "root", "size_bytes")

    def __init__(self, document: Document, size_bytes: int, limits: Limits) -> None:
        self.root = document
        self.size_bytes = size_bytes
        self._limits = limits
        self._owned: dict[int, Json] = {}
        """By identity; holding them keeps their identities from being used again."""

    def apply(self, operation: Operation) -> tuple[Operation | None, int | None]:
        """Return what of the operation had an effect, and the length of its target afterwards."""
        if isinstance(operation, Replace):
            return self._replace(operation), None
        steps, target = self._find(operation.path)
        if isinstance(operation, Append):
            if not isinstance(target, list):
                raise Misfit("expected_list", _wrong_target(operation, target, "a list"))
            return operation, self._append(steps, target, operation.value)
        if not isinstance(target, dict):
            raise Misfit("expected_object", _wrong_target(operation, target, "an object"))
        if isinstance(operation, DelKey):
            if operation.key not in target:
                return None, len(target)
            return operation, self._delete(steps, target, operation.key)
        mapping = operation.mapping if isinstance(operation, Merge) else {operation.key: operation.value}
        changes, length = self._update(steps, target, mapping)
        if isinstance(operation, Merge) and len(changes) < len(mapping):
            return (Merge(changes, operation.path) if changes else None), length
        return (operation if changes else None), length

    def _find(self, path: str) -> tuple[Steps, Json]:
        try:
            return trace(self.root, path)
        except NoSuchPath as missing:
            remedy = " Create it with set_key first." if missing.is_key_missing else ""
            text = f"the path {quote(path)} does not exist: {missing.text}.{remedy}"
            raise Misfit("path_not_found", text) from None
        except InvalidInput as error:
            raise Misfit("bad_path", error.message) from None

    def _append(self, steps: Steps, target: list[Json], value: Json) -> int:
        self.size_bytes += (
            self._weigh("the value", value, len(steps) + 1) + _commas(len(target) + 1) - _commas(len(target))
        )
        items = cast("list[Json]", self._writable(steps))
        items.append(value)
        return len(items)

    def _delete(self, steps: Steps, target: dict[str, Json], key: str) -> int:
        self.size_bytes -= (
            _entries(size_of({key: target[key]}), 1) + _commas(len(target)) - _commas(len(target) - 1)
        )
        members = cast("dict[str, Json]", self._writable(steps))
        del members[key]
        return len(members)

    def _update(
        self, steps: Steps, target: dict[str, Json], mapping: dict[str, Json]
    ) -> tuple[dict[str, Json], int]:
        size_bytes = self._weigh("the object that it would set", mapping, len(steps))
        changes = {
            key: value for key, value in mapping.items() if key not in target or not same(target[key], value)
        }
        if not changes:
            return changes, len(target)
        if len(changes) < len(mapping):
            size_bytes = size_of(changes)
        replaced = {key: target[key] for key in changes if key in target}
        length = len(target) + len(changes) - len(replaced)
        self.size_bytes += _entries(size_bytes, len(changes)) + _commas(length)
        self.size_bytes -= _entries(size_of(replaced), len(replaced)) + _commas(len(target))
        cast("dict[str, Json]", self._writable(steps)).update(changes)
        return changes, length

    def _replace(self, operation: Replace) -> Operation | None:
        steps, old = self._find(operation.path)
        if not steps:
            raise Misfit("bad_path", "the root cannot be replaced.")
        if is_identical(old, operation.value):
            return None
        self.size_bytes += self._weigh("the value", operation.value, len(steps)) - size_of(old)
        container = cast("dict[str | int, Json]", self._writable(steps[:-1]))
        container[steps[-1]] = operation.value
        return operation

    def _weigh(self, what: str, value: Json, depth_above: int) -> int:
        try:
            weight = weigh(value, self._limits)
        except Unfit as unfit:
            raise Misfit(unfit.reason, f"{what} {unfit.text}.") from None
        depth = depth_above + weight.depth
        if weight.depth and depth > self._limits.max_depth:
            raise Misfit(
                "too_deep",
                f"the document would be {depth} levels deep; at most {self._limits.max_depth} are allowed.",
            )
        return weight.size_bytes

    def _writable(self, steps: Steps) -> Json:
        """Return the container at `steps` after making every container on the way our own."""
        self.root = cast("Document", self._own(self.root))
        container: Json = self.root
        for step in steps:
            outer = cast("dict[str | int, Json]", container)  # or a list: `trace` made the steps fit
            container = outer[step] = self._own(outer[step])
        return container

    def _own(self, container: Json) -> Json:
        if id(container) not in self._owned:
            container = cast("dict[str, Json] | list[Json]", container).copy()
            self._owned[id(container)] = container
        return container


def _wrong_target(operation: Operation, target: Json, needed: str) -> str:
    where = f"the path {quote(operation.path)}" if operation.path else "the root"
    return f"it needs {needed}, but {where} holds {name_type(target)}."


def _commas(length: int) -> int:
    return max(0, length - 1)


def _entries(size_bytes: int, length: int) -> int:
    """Return the bytes of an object's members alone, without braces and commas."""
    return size_bytes - 2 - _commas(length)
