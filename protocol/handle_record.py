"""One handle as a line of an export: everything that another store needs to hold it.

    {"user": "local", "space": "agent", "handle": "research_k3v9x2mq", "kind": "research", "title": null,
     "version": 7, "created_at": 1.7e9, "updated_at": 1.7e9, "expires_at": null, "ttl_days": null,
     "last_writer": "laptop/claude-code", "state": {...},
     "history": {"checkpoints": [...], "changes": [...]}}

`history` is there if it was asked for. A checkpoint is a document with the metadata of its version:
`version`, `title`, `expires_at`, `ttl_days`, `writer`, `at`, `state`; the first one is where the history
begins. A change has `version`, `action`, `writer`, `at` and `record`, which is what the log says of it. Times
are seconds since the Unix epoch. Pure: nothing here reads a file or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, get_args

from mcpstated.protocol import fields
from mcpstated.protocol.documents import check_document
from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.store import Action, Space
from mcpstated.protocol.wording import name_type

if TYPE_CHECKING:
    from mcpstated.protocol.documents import Document
    from mcpstated.protocol.limits import Limits

FORMAT = "mcpstated-export"
"""What the first line of an export calls it."""
FORMAT_VERSION = 1
LEVELS_AROUND = 8
"""Containers that a line may have around a document or around a value in a change."""
_MAX_TIME = 1e12
"""Later than any date that a calendar can spell."""
_MAX_VERSION = 2**53
"""Far from what a store can count, so that there is always a next one."""


@dataclass(frozen=True, slots=True)
class RecordedCheckpoint:
    """A whole document at one version."""

    version: int
    title: str | None
    expires_at: float | None
    ttl_days: float | None
    writer: str
    at: float
    document: Document


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """One entry of the log."""

    version: int
    action: Action
    writer: str
    at: float
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class HandleRecord:
    """One handle, whole."""

    space: Space
    user: str
    handle: str
    kind: str
    title: str | None
    version: int
    created_at: float
    updated_at: float
    expires_at: float | None
    ttl_days: float | None
    last_writer: str
    document: Document
    checkpoints: tuple[RecordedCheckpoint, ...] = ()
    """By version, the oldest first; empty if the history was not asked for."""
    changes: tuple[RecordedChange, ...] = ()
    """By version without gaps, from the version after the oldest checkpoint to the newest."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Something in a source of handles that is none."""

    where: str
    """A line number or a handle."""
    reason: str


def record_to_json(record: HandleRecord) -> dict[str, Any]:
    """Return the object of one line."""
    line: dict[str, Any] = {
        "user": record.user,
        "space": record.space,
        "handle": record.handle,
        "kind": record.kind,
        "title": record.title,
        "version": record.version,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "expires_at": record.expires_at,
        "ttl_days": record.ttl_days,
        "last_writer": record.last_writer,
        "state": record.document,
    }
    if record.checkpoints:
        line["history"] = {
            "checkpoints": [
                {
                    "version": checkpoint.version,
                    "title": checkpoint.title,
                    "expires_at": checkpoint.expires_at,
                    "ttl_days": checkpoint.ttl_days,
                    "writer": checkpoint.writer,
                    "at": checkpoint.at,
                    "state": checkpoint.document,
                }
                for checkpoint in record.checkpoints
            ],
            "changes": [
                {
                    "version": change.version,
                    "action": change.action,
                    "writer": change.writer,
                    "at": change.at,
                    "record": change.record,
                }
                for change in record.changes
            ],
        }
    return line


def record_from_json(line: Mapping[str, Any], *, limits: Limits) -> HandleRecord:
    """Return the handle that a line tells of, fully checked but for whether its history replays to it.

    Raises:
        InvalidInput: A field is missing or out of range; `field` names it.
        StateTooLarge: A document is above the limit.
    """
    reader = _Reader(line, limits)
    version = reader.version("version")
    checkpoints, changes = _history(line.get("history"), version, limits)
    return HandleRecord(
        space=cast("Space", reader.one_of("space", get_args(Space))),
        user=fields.check_user(reader.value("user"), limits),
        handle=fields.check_handle(reader.value("handle")),
        kind=fields.check_kind(reader.value("kind")),
        title=fields.check_title(line.get("title"), limits),
        version=version,
        created_at=reader.time("created_at"),
        updated_at=reader.time("updated_at"),
        expires_at=reader.maybe_time("expires_at"),
        ttl_days=fields.check_ttl_days(line.get("ttl_days"), limits),
        last_writer=fields.check_writer(reader.value("last_writer"), limits),
        document=reader.document("state"),
        checkpoints=checkpoints,
        changes=changes,
    )


def _history(
    history: object, newest: int, limits: Limits
) -> tuple[tuple[RecordedCheckpoint, ...], tuple[RecordedChange, ...]]:
    if history is None:
        return (), ()
    reader = _Reader(history, limits, "history")
    checkpoints = tuple(_checkpoint(item, limits) for item in reader.items("checkpoints"))
    changes = tuple(_change(item, limits) for item in reader.items("changes"))
    if not checkpoints:
        raise InvalidInput("history needs the checkpoint that it begins with.", field="history.checkpoints")
    versions = [change.version for change in changes]
    if versions != list(range(checkpoints[0].version + 1, newest + 1)):
        raise InvalidInput(
            "history must have every change from its first checkpoint to the newest version, in order.",
            field="history.changes",
        )
    places = [checkpoint.version for checkpoint in checkpoints]
    if places != sorted(set(places)) or places[-1] > newest:
        raise InvalidInput(
            "history must have its checkpoints by rising version.", field="history.checkpoints"
        )
    return checkpoints, changes


def _checkpoint(item: object, limits: Limits) -> RecordedCheckpoint:
    reader = _Reader(item, limits, "history.checkpoints")
    return RecordedCheckpoint(
        version=reader.version("version"),
        title=fields.check_title(reader.line.get("title"), limits),
        expires_at=reader.maybe_time("expires_at"),
        ttl_days=fields.check_ttl_days(reader.line.get("ttl_days"), limits),
        writer=fields.check_writer(reader.value("writer"), limits),
        at=reader.time("at"),
        document=reader.document("state"),
    )


def _change(item: object, limits: Limits) -> RecordedChange:
    reader = _Reader(item, limits, "history.changes")
    record = reader.value("record")
    if not isinstance(record, dict):
        raise InvalidInput("record must be an object.", field="history.changes.record")
    return RecordedChange(
        version=reader.version("version"),
        action=cast("Action", reader.one_of("action", get_args(Action))),
        writer=fields.check_writer(reader.value("writer"), limits),
        at=reader.time("at"),
        record=record,
    )


class _Reader:
    """Reads the fields of one object and names them in errors."""

    def __init__(self, line: object, limits: Limits, place: str = "") -> None:
        if not isinstance(line, dict):
            raise InvalidInput(f"{place or 'A line'} must be an object, not {name_type(line)}.", field=place)
        self.line: dict[str, Any] = line
        self._limits = limits
        self._prefix = f"{place}." if place else ""

    def value(self, name: str) -> object:
        if name not in self.line:
            raise InvalidInput(f"{self._prefix}{name} is missing.", field=f"{self._prefix}{name}")
        return self.line[name]

    def version(self, name: str) -> int:
        version = fields.check_version(self.value(name), f"{self._prefix}{name}")
        if not 1 <= version <= _MAX_VERSION:
            raise InvalidInput(
                f"{self._prefix}{name} must be from 1 to {_MAX_VERSION}.", field=f"{self._prefix}{name}"
            )
        return version

    def time(self, name: str) -> float:
        value = self.value(name)
        if type(value) not in (int, float) or not 0 <= cast("float", value) < _MAX_TIME:
            raise InvalidInput(
                f"{self._prefix}{name} must be a time in seconds.", field=f"{self._prefix}{name}"
            )
        return float(cast("float", value))

    def maybe_time(self, name: str) -> float | None:
        return None if self.line.get(name) is None else self.time(name)

    def document(self, name: str) -> Document:
        document = self.value(name)
        check_document(document, limits=self._limits)
        return cast("Document", document)

    def items(self, name: str) -> Sequence[object]:
        items = self.value(name)
        if not isinstance(items, list):
            raise InvalidInput(f"{self._prefix}{name} must be a list.", field=f"{self._prefix}{name}")
        return items

    def one_of(self, name: str, known: Sequence[str]) -> str:
        value = self.value(name)
        if value not in known:
            raise InvalidInput(
                f"{self._prefix}{name} must be one of {', '.join(known)}.", field=f"{self._prefix}{name}"
            )
        return str(value)
