"""Log records: what one change says, as the JSON text that the backend keeps, and how it is replayed.

    {"ops": [...]}                                       a patch, or a save that is stored as its difference
    {"ops": [...], "title": "x", "ttl_days": 7, "expires_at": 1.7e9}
    {}                                                   a save whose document is a checkpoint; a delete

`title` and the pair `ttl_days`, `expires_at` are there only if the change set them, and null clears
them. The document of a mint, or of a save that is not stored as a difference, is the checkpoint of the
same version. Replay is the inverse of evaluation: the state before and the record give the state after.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from mcpstated.daemon.backends.interface import (
    History,
    StoredChange,
    StoredCheckpoint,
    StoredHandle,
    StoredHead,
)
from mcpstated.protocol import patches
from mcpstated.protocol.documents import Document, dump, size_of
from mcpstated.protocol.errors import McpStateError
from mcpstated.protocol.outline import summary
from mcpstated.protocol.store import KEEP, HandleInfo, KeepType, Revision, Version

if TYPE_CHECKING:
    from mcpstated.daemon.backends.interface import NewChange
    from mcpstated.protocol.handle_record import HandleRecord
    from mcpstated.protocol.patches import Operation


class Damaged(Exception):
    """What is stored does not fit together. Its text may hold parts of a state and is never shown."""


@dataclass(frozen=True, slots=True)
class State:
    """One version of a handle, whole: what an evaluation builds on and makes."""

    info: HandleInfo
    """Its revision is 0 while the change is not durable yet."""
    ttl_days: float | None
    """As it was last set; what remains of it is in `info.expires_at`."""
    document: Document
    tail_changes: int
    """Changes since the newest checkpoint."""
    tail_bytes: int
    """Length of their records."""

    def at_revision(self, revision: int) -> State:
        """Return the same state once it is known which revision made it."""
        info = self.info
        numbered = HandleInfo(  # spelled out: `dataclasses.replace` takes several times as long
            info.handle,
            info.kind,
            info.title,
            info.version,
            Revision(revision),
            info.created_at,
            info.updated_at,
            info.expires_at,
            info.last_writer,
            info.size_bytes,
            info.outline,
        )
        return State(numbered, self.ttl_days, self.document, self.tail_changes, self.tail_bytes)


@dataclass(frozen=True, slots=True)
class Step:
    """A write that was evaluated: what it makes of the handle and what is to be stored."""

    change: NewChange
    state: State | None
    """The handle afterwards; None if it is deleted."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a handle expires, and the time to live that led to it; both None means never."""

    ttl_days: float | None
    expires_at: float | None


def encode(
    operations: Sequence[Operation] = (),
    *,
    title: str | None | KeepType = KEEP,
    expiry: Expiry | None = None,
) -> str:
    """Return the record of a change.

    Args:
        title: KEEP if the change leaves it.
        expiry: None if the change leaves it.
    """
    record: dict[str, Any] = {}
    if operations:
        record["ops"] = patches.operations_to_log(operations)
    if title is not KEEP:
        record["title"] = title
    if expiry is not None:
        record["ttl_days"] = expiry.ttl_days
        record["expires_at"] = expiry.expires_at
    return dump(record)


def operations_of(change: StoredChange) -> tuple[Operation, ...]:
    """Return what a change did to the document, as operations; none if it says nothing of them.

    Raises: Damaged.
    """
    try:
        return patches.operations_from_log(_record_of(change).get("ops", ()))
    except McpStateError as error:
        raise Damaged(error.message) from error


def rebuild(stored: StoredHandle) -> State:
    """Return the newest state of a handle as the backend stored it. Its metadata is the stored head's.

    Raises: Damaged.
    """
    document, size_bytes = _document_of(stored)
    tail_bytes = sum(len(change.body) for change in stored.changes)
    info = replace(stored.head.info, size_bytes=size_bytes)
    return State(info, stored.head.ttl_days, document, len(stored.changes), tail_bytes)


def rebuild_version(stored: StoredHandle) -> State:
    """Return the state as of the last of `stored.changes`, metadata included.

    Raises: Damaged.
    """
    checkpoint = _checkpoint_of(stored)
    title, expiry = checkpoint.title, Expiry(checkpoint.ttl_days, checkpoint.expires_at)
    newest: StoredChange | StoredCheckpoint = checkpoint
    for change in stored.changes:
        newest = change
        record = _record_of(change)
        title = record.get("title", title)
        if "expires_at" in record:
            expiry = Expiry(record.get("ttl_days"), record["expires_at"])
    document, size_bytes = _document_of(stored)
    info = replace(
        stored.head.info,
        title=title,
        version=Version(newest.version),
        revision=Revision(newest.revision),
        updated_at=newest.at,
        expires_at=expiry.expires_at,
        last_writer=newest.writer,
        size_bytes=size_bytes,
        outline=summary(document),
    )
    tail_bytes = sum(len(change.body) for change in stored.changes)
    return State(info, expiry.ttl_days, document, len(stored.changes), tail_bytes)


def history_from(record: HandleRecord, *, now: float) -> History:
    """Return the past of a handle of another store as this one keeps it; no time in it is after `now`."""
    return History(
        checkpoints=tuple(
            StoredCheckpoint(
                checkpoint.version,
                0,
                checkpoint.title,
                checkpoint.expires_at,
                checkpoint.ttl_days,
                checkpoint.writer,
                min(checkpoint.at, now),
                dump(checkpoint.document),
            )
            for checkpoint in record.checkpoints
        ),
        changes=tuple(
            StoredChange(
                change.version, 0, change.action, dump(change.record), change.writer, min(change.at, now)
            )
            for change in record.changes
        ),
    )


def rebuild_newest(history: History, info: HandleInfo) -> State:
    """Return the state that a history leads to, with the metadata of its newest version.

    Raises: Damaged.
    """
    checkpoint = history.checkpoints[-1]
    tail = tuple(change for change in history.changes if change.version > checkpoint.version)
    for change in history.changes:
        operations_of(change)
    oldest = history.checkpoints[0].version
    head = StoredHead(info, checkpoint.ttl_days, oldest, history.stored_bytes)
    replayed = rebuild_version(StoredHandle(head, checkpoint, tail))
    return replace(replayed, info=replace(replayed.info, revision=Revision(0)))


def checkpoint_from(state: State) -> StoredCheckpoint:
    """Return the checkpoint that a state can be rebuilt from."""
    info = state.info
    return StoredCheckpoint(
        info.version,
        info.revision,
        info.title,
        info.expires_at,
        state.ttl_days,
        info.last_writer,
        info.updated_at,
        dump(state.document),
    )


def _document_of(stored: StoredHandle) -> tuple[Document, int]:
    document = cast("Document", object_in(_checkpoint_of(stored).document))
    operations = [operation for change in stored.changes for operation in operations_of(change)]
    try:
        return patches.replay(document, size_of(document), operations)
    except McpStateError as error:
        raise Damaged(error.message) from error


def _checkpoint_of(stored: StoredHandle) -> StoredCheckpoint:
    if stored.checkpoint is None:
        raise Damaged("there is no checkpoint to begin with")
    return stored.checkpoint


def _record_of(change: StoredChange) -> dict[str, Any]:
    return object_in(change.body)


def object_in(text: str) -> dict[str, Any]:
    """Return the JSON object of a stored text. Raises: Damaged."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged(str(error)) from error
    if not isinstance(value, dict):
        raise Damaged("not an object")
    return value
