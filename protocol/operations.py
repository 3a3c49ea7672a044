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
from mcpstated.protocol.wording import list_keys, name_type, printable, quote

if TYPE_CHECKING:
    from mcpstated.protocol.documents import Json

_OP_CHARS = 40
_PATH_CHARS = 500


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
_TYPES: dict[str, type[str | dict[str, object]]] = {"path": str, "key": str, "mapping": dict}


class Misfit(Exception):
    """An operation is malformed or does not fit the document; `patch_error` adds which one it was."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


def patch_error(index: int, op: str, path: str, misfit: Misfit) -> PatchError:
    """Return the error for operation number `index`, counted from 0."""
    named = f" ({printable(op, _OP_CHARS)})" if op else ""
    return PatchError(
        f"ops[{index}]{named}: {misfit.text} Nothing of this patch was applied.",
        index=index,
        op=printable(op, _OP_CHARS),
        path=printable(path, _PATH_CHARS),
        reason=misfit.reason,
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
        raise InvalidInput(f"ops must be a list of operations, not {name_type(ops)}.", field="ops")
    operations: list[Operation] = []
    for index, op in enumerate(ops):
        try:
            operations.append(_read_one(op, known))
        except Misfit as misfit:
            given = op if isinstance(op, dict) else {}
            name, path = (value if isinstance(value, str) else "" for value in map(given.get, ("op", "path")))
            raise patch_error(index, name, path, misfit) from None
    return tuple(operations)


def _read_one(op: object, known: Mapping[str, type[Operation]]) -> Operation:
    if not isinstance(op, dict):
        raise Misfit("bad_field_type", f'an operation must be an object with "op", not {name_type(op)}.')
    if "op" not in op:
        raise Misfit("missing_field", f'"op" is missing; it is one of {list_keys(known)}.')
    name = op["op"]
    if not isinstance(name, str):
        raise Misfit(
            "bad_field_type", f'"op" must be text, one of {list_keys(known)}, not {name_type(name)}.'
        )
    if name not in known:
        raise Misfit("unknown_op", f"there is no operation {quote(name)}; use one of {list_keys(known)}.")
    kind = known[name]
    wanted = kind.__slots__
    fields = {**_OPTIONAL.get(name, {}), **{field: value for field, value in op.items() if field != "op"}}
    for field in fields:
        if field not in wanted:
            text = f"it has no field {quote(str(field))}; its fields are {list_keys(wanted)}."
            raise Misfit("unknown_field", text)
    for field in wanted:
        if field not in fields:
            text = f"the field {quote(field)} is missing; it needs {list_keys(wanted)}."
            raise Misfit("missing_field", text)
        value = fields[field]
        if field in _TYPES and type(value) is not _TYPES[field]:
            text = f"the field {quote(field)} must be {name_type(_TYPES[field]())}, not {name_type(value)}."
            raise Misfit("bad_field_type", text)
    return kind(**cast("dict[str, object]", fields))  # type: ignore[arg-type]
