"""What the daemon answers to a program, as frozen values.

Above it sits `connection`, which asks; below it the wire, which carries plain maps. Fields that this
build does not know are left out, so that a newer daemon may say more; a field that is missing means
that the two sides differ, and is said so.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from mcpstated.protocol.errors import McpStateError, from_payload
from mcpstated.protocol.store import HandleInfo, Page, Receipt, Revision, StoreStatus, Touched, Trashed

if TYPE_CHECKING:
    from mcpstated.protocol.documents import Json

_Value = TypeVar("_Value")


class MalformedAnswer(Exception):
    """The daemon answered in a shape that this build does not understand."""


@dataclass(frozen=True, slots=True)
class DaemonInfo:
    """One run of one daemon."""

    pid: int
    version: str
    protocol: int
    instance: str
    """Names this run; a daemon that was started anew has another."""
    socket: str
    started_at: float
    """Seconds since the Unix epoch."""
    uptime_seconds: float
    data_dir: str
    log: str


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One connection that the daemon holds."""

    id: int
    role: str
    """`shim`, `library` or `cli`."""
    pid: int
    user: str
    writer: str
    client: str
    """The MCP client's own name for itself; empty if it has not said."""
    build: str
    connected_at: float
    in_flight: int
    requests: int


@dataclass(frozen=True, slots=True)
class BackupsInfo:
    """The backups that the daemon has made by itself."""

    directory: str
    newest_at: float | None
    """When the newest was begun, in seconds since the Unix epoch; None if there is none."""
    files: int
    size_bytes: int
    error: str | None
    """Why the last attempt failed; None if it did not."""


@dataclass(frozen=True, slots=True)
class Status:
    """What `status` says: the daemon, its store, its backups, and who is connected."""

    daemon: DaemonInfo
    store: StoreStatus
    sessions: tuple[SessionInfo, ...]
    backups: BackupsInfo | None = None
    """None if the daemon is too old to make any."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A document, or the part of it at a path, with the handle's metadata."""

    info: HandleInfo
    state: Json


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the store, told after it was durable."""

    revision: Revision
    handle: str
    version: int
    action: str
    """`mint`, `save`, `patch`, `touch`, `delete`, `expire` or `undelete`."""
    writer: str
    at: float
    """Seconds since the Unix epoch."""


def status_from_wire(fields: Mapping[str, object]) -> Status:
    """Return the answer to `status`."""
    return Status(
        daemon=_build(DaemonInfo, _mapping(fields, "daemon")),
        store=_build(StoreStatus, _mapping(fields, "store")),
        sessions=tuple(_build(SessionInfo, session) for session in _mappings(fields, "sessions")),
        backups=_build(BackupsInfo, _mapping(fields, "backups")) if "backups" in fields else None,
    )


def page_from_wire(fields: Mapping[str, object]) -> Page:
    """Return the answer to `list`."""
    handles = tuple(_build(HandleInfo, info) for info in _mappings(fields, "handles"))
    return _build(Page, {**fields, "handles": handles})


def loaded_from_wire(fields: Mapping[str, object], state: Json) -> Loaded:
    """Return the answer to `load`; the state comes parsed, for the wire has its text."""
    return Loaded(_build(HandleInfo, fields), state)


def receipt_from_wire(fields: Mapping[str, object]) -> Receipt:
    """Return the answer to a write."""
    touched = []
    for item in _list(fields, "touched"):
        if not isinstance(item, Sequence) or len(item) != 3:
            raise MalformedAnswer("an item of 'touched' is no triple")
        touched.append(Touched(*item))
    return Receipt(
        info=_build(HandleInfo, _mapping(fields, "info")),
        is_changed=bool(_field(fields, "is_changed")),
        touched=tuple(touched),
        is_deleted=bool(_field(fields, "is_deleted")),
        trash_until=cast("float | None", fields.get("trash_until")),  # older daemons do not say it
    )


def trash_from_wire(fields: Mapping[str, object]) -> tuple[Trashed, ...]:
    """Return the answer to `trash`."""
    return tuple(
        _build(Trashed, {**item, "info": _build(HandleInfo, _mapping(item, "info"))})
        for item in _mappings(fields, "handles")
    )


def change_from_wire(revision: int, fields: Mapping[str, object]) -> Change:
    """Return one event of a watch."""
    return _build(Change, {**fields, "revision": revision})


def text_of(fields: Mapping[str, object], name: str) -> str:
    """Return a field that must be text."""
    value = _field(fields, name)
    if not isinstance(value, str):
        raise MalformedAnswer(f"'{name}' is no text")
    return value


def integer_of(fields: Mapping[str, object], name: str) -> int:
    """Return a field that must be an integer."""
    value = _field(fields, name)
    if type(value) is not int:
        raise MalformedAnswer(f"'{name}' is no integer")
    return value


def _build(cls: type[_Value], fields: Mapping[str, object]) -> _Value:
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    return cls(**{name: _field(fields, name) for name in names})


def _field(fields: Mapping[str, object], name: str) -> object:
    try:
        return fields[name]
    except KeyError:
        raise MalformedAnswer(f"'{name}' is missing") from None


def _mapping(fields: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = _field(fields, name)
    if not isinstance(value, Mapping):
        raise MalformedAnswer(f"'{name}' is no map")
    return cast("Mapping[str, object]", value)


def _list(fields: Mapping[str, object], name: str) -> list[object]:
    value = _field(fields, name)
    if not isinstance(value, list):
        raise MalformedAnswer(f"'{name}' is no list")
    return value


def _mappings(fields: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    items = _list(fields, name)
    for item in items:
        if not isinstance(item, Mapping):
            raise MalformedAnswer(f"an item of '{name}' is no map")
    return cast("list[Mapping[str, object]]", items)


def error_from_wire(payload: Mapping[str, object]) -> McpStateError:
    """Return the error of a failure; what a conflict tells of the current state travels as JSON text."""
    current = payload.get("current")
    if isinstance(current, str):
        try:
            payload = {**payload, "current": json.loads(current)}
        except ValueError as error:
            raise MalformedAnswer("'current' is no JSON") from error
    return from_payload(payload)
