"""The patch operations as values, and the forms in which they travel and are stored.

    {"op": "append", "path": "sources", "value": ...}
    {"op": "set_key", "path": "profile", "key": "name", "value": ...}
    {"op": "del_key", "path": "profile", "key": "name"}
    {"op": "merge", "path": "profile", "mapping": {...}}          path may be left out: the root

The log knows one more, `replace`, which `difference` makes and callers never may. What an operation
does to a document is in `patches`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias, cast

from mcpstated.protocol.errors import InvalidInput, PatchError
from mcpstated.protocol.wording import json_type, list_keys, printable, quote

if TYPE_CHECKING:
    from mcpstated.protocol.documents import Json

_DETAIL_CHARS = 500


@dataclass(frozen=True, slots=True)
class Append:
    """Add `value` at the end of the list at `path`."""

    OP: ClassVar[str] = "append"
    path: str
    value: Json


@dataclass(frozen=True, slots=True)
class SetKey:
    """Set `key` of the object at `path`; a new key comes last."""

    OP: ClassVar[str] = "set_key"
    path: str
    key: str
    value: Json


@dataclass(frozen=True, slots=True)
class DelKey:
    """Remove `key` from the object at `path`; an absent key is no change."""

    OP: ClassVar[str] = "del_key"
    path: str
    key: str


@dataclass(frozen=True, slots=True)
class Merge:
    """Set every key of `mapping` in the object at `path`, without looking into the values."""

    OP: ClassVar[str] = "merge"
    mapping: dict[str, Json]
    path: str = ""


@dataclass(frozen=True, slots=True)
class Replace:
    """Put `value` in the place of the member or item at `path`, a JSON Pointer. In the log only."""

    OP: ClassVar[str] = "replace"
    path: str
    value: Json


Operation: TypeAlias = Append | SetKey | DelKey | Merge | Replace

_FROM_CALLERS: dict[str, type[Operation]] = {op.OP: op for op in (Append, SetKey, DelKey, Merge)}
_FROM_LOG: dict[str, type[Operation]] = {**_FROM_CALLERS, Replace.OP: Replace}
_OPTIONAL: dict[str, dict[str, str]] = {Merge.OP: {"path": ""}}


def patch_error(index: int, op: str, path: str, reason: str, text: str) -> PatchError:
    """Return the one form of error for operation number `index`."""
    what = f"Operation {index}" + (f" ({printable(op, 40)})" if op else "")
    return PatchError(
        f"{what}: {text} Nothing of this patch was applied.",
        index=index,
        op=printable(op, _DETAIL_CHARS),
        path=printable(path, _DETAIL_CHARS),
        reason=reason,
    )


def operations_from_wire(ops: Sequence[object]) -> tuple[Operation, ...]:
    """Return the operations that a caller sent. Paths and values are judged when they are applied.

    Raises:
        PatchError: An operation is unknown, or a field is missing, unknown or of the wrong type.
            Details: `index` (from 0), `op`, `path`, `reason`.
        InvalidInput: `ops` is not a list.
    """
    return _read(ops, _FROM_CALLERS)


def operations_to_wire(operations: Sequence[Operation]) -> list[dict[str, Json]]:
    """Return the form that `operations_from_wire` reads."""
    return [{"op": operation.OP, **_fields(operation)} for operation in operations]


def operations_from_log(ops: Sequence[object]) -> tuple[Operation, ...]:
    """Return the operations that `operations_to_log` wrote; only this form may hold `replace`."""
    return _read(ops, _FROM_LOG)


def operations_to_log(operations: Sequence[Operation]) -> list[dict[str, Json]]:
    """Return the form in which operations are stored: that of the wire, and `replace`."""
    return operations_to_wire(operations)


def _fields(operation: Operation) -> dict[str, Json]:
    return {name: getattr(operation, name) for name in operation.__slots__}


def _read(ops: Sequence[object], known: Mapping[str, type[Operation]]) -> tuple[Operation, ...]:
    if not isinstance(ops, list | tuple):
        raise InvalidInput(f"ops must be a list of operations, not {json_type(ops)}.", field="ops")
    return tuple(_read_one(index, op, known) for index, op in enumerate(ops))


def _read_one(index: int, op: object, known: Mapping[str, type[Operation]]) -> Operation:
    if not isinstance(op, dict):
        raise patch_error(
            index, "", "", "bad_field_type", f'an operation must be an object with "op", not {json_type(op)}.'
        )
    name, path = op.get("op"), op.get("path")
    path = path if isinstance(path, str) else ""
    kind = known.get(name) if isinstance(name, str) else None
    if kind is None:
        if "op" not in op:
            reason, text = "missing_field", f'"op" is missing; it is one of {list_keys(known)}.'
        elif not isinstance(name, str):
            reason, text = (
                "bad_field_type",
                f'"op" must be text, one of {list_keys(known)}, not {json_type(name)}.',
            )
        else:
            reason, text = (
                "unknown_op",
                f"there is no operation {quote(name)}; use one of {list_keys(known)}.",
            )
        raise patch_error(index, name if isinstance(name, str) else "", path, reason, text)
    wanted = kind.__slots__
    fields = {**_OPTIONAL.get(kind.OP, {}), **op}
    del fields["op"]
    for field in fields:
        if field not in wanted:
            raise patch_error(
                index,
                kind.OP,
                path,
                "unknown_field",
                f"it has no field {quote(str(field))}; its fields are {list_keys(wanted)}.",
            )
    for field in wanted:
        if field not in fields:
            raise patch_error(
                index,
                kind.OP,
                path,
                "missing_field",
                f"the field {quote(field)} is missing; give {list_keys(wanted)}.",
            )
        expected = _TYPES.get(field)
        if expected is not None and type(fields[field]) is not expected:
            raise patch_error(
                index,
                kind.OP,
                path,
                "bad_field_type",
                f"the field {quote(field)} must be {_ARTICLES[expected]}, not {json_type(fields[field])}.",
            )
    return kind(**cast("dict[str, object]", fields))  # type: ignore[arg-type]


_TYPES: dict[str, type] = {"path": str, "key": str, "mapping": dict}
_ARTICLES: dict[type, str] = {str: "text", dict: "an object"}
