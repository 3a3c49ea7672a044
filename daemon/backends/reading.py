"""What the engine reads from SQLite. Runs in the reader connection's worker thread.

Each function reads from one snapshot of the database, and none leaves a transaction open: an open
one would keep the write-ahead log from being folded back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from mcpstated.daemon.backends.interface import (
    BackendStatus,
    Key,
    KnownRequest,
    Opened,
    Repeated,
    StoredChange,
    StoredCheckpoint,
    StoredHandle,
    StoredHead,
    StoredPage,
)
from mcpstated.daemon.backends.schema import SCHEMA_VERSION
from mcpstated.daemon.backends.writing import newest_revision
from mcpstated.protocol.store import CallToken, HandleId, HandleInfo, Revision, Space, Trashed, Version

T = TypeVar("T")


def in_snapshot(db: apsw.Connection, work: Callable[[], T]) -> T:
    """Run `work` with one unchanging view of the database."""
    db.execute("BEGIN")
    try:
        return work()
    finally:
        db.execute("ROLLBACK")


def load(db: apsw.Connection, key: Key, version: int | None, with_trash: bool) -> StoredHandle | None:
    """Return what a version is rebuilt from. See `Backend.load`."""
    return in_snapshot(db, lambda: find(db, key, version, with_trash=with_trash))


def find(
    db: apsw.Connection, key: Key, version: int | None = None, *, with_trash: bool
) -> StoredHandle | None:
    """Return what a version is rebuilt from, in the caller's snapshot."""
    row: Any = db.execute(
        "SELECT handle, kind, title, version, revision, created_at, updated_at, expires_at, last_writer,"
        " size_bytes, outline, ttl_days, oldest_version, history_bytes, trash_until, id"
        " FROM handles WHERE space = ? AND user = ? AND handle = ?"
        " AND (deleted_at IS NULL OR (? AND trash_until IS NOT NULL))",
        (key.space, key.user, key.handle, with_trash),
    ).fetchone()
    if row is None:
        return None
    *info, ttl_days, oldest_version, history_bytes, trash_until, handle_id = row
    head = StoredHead(_info(info), ttl_days, oldest_version, history_bytes, trash_until)
    wanted = head.info.version if version is None else version
    if wanted < oldest_version:
        return StoredHandle(head, None, ())
    checkpoint: Any = db.execute(
        "SELECT version, revision, title, expires_at, ttl_days, writer, at, document FROM checkpoints"
        " WHERE handle_id = ? AND version <= ? ORDER BY version DESC LIMIT 1",
        (handle_id, wanted),
    ).fetchone()
    if checkpoint is None:
        return StoredHandle(head, None, ())
    changes = db.execute(
        "SELECT version, revision, action, body, writer, at FROM changes"
        " WHERE handle_id = ? AND version > ? AND version <= ? ORDER BY version",
        (handle_id, checkpoint[0], wanted),
    )
    return StoredHandle(head, StoredCheckpoint(*checkpoint), _changes(changes))


def changes(db: apsw.Connection, key: Key, after: int, upto: int, limit: int) -> tuple[StoredChange, ...]:
    """Return kept changes of a live handle, oldest first. See `Backend.changes`."""
    return _changes(
        db.execute(
            "SELECT c.version, c.revision, c.action, c.body, c.writer, c.at"
            " FROM handles h JOIN changes c ON c.handle_id = h.id"
            " WHERE h.space = ? AND h.user = ? AND h.handle = ? AND h.deleted_at IS NULL"
            " AND c.version > ? AND c.version > h.oldest_version AND c.version <= ?"
            " ORDER BY c.version LIMIT ?",
            (key.space, key.user, key.handle, after, upto, limit),
        )
    )


def list_page(
    db: apsw.Connection,
    space: Space,
    user: str,
    kind: str | None,
    words: Sequence[str],
    before: int | None,
    limit: int,
    now: float,
) -> StoredPage:
    """Return one page and the total. See `Backend.list`."""
    bindings = {
        "space": space,
        "user": user,
        "kind": kind,
        "words": json.dumps(words),
        "before": before,
        "limit": limit,
        "now": now,
    }

    def browse() -> StoredPage:
        rows: Any = db.execute(
            "SELECT handle, kind, title, version, revision, created_at, updated_at, expires_at, last_writer,"
            " size_bytes, outline FROM handles"
            " WHERE space = :space AND user = :user AND deleted_at IS NULL"
            " AND revision < coalesce(:before, 9223372036854775807)"
            " AND (:kind IS NULL OR kind = :kind) AND (expires_at IS NULL OR expires_at > :now)"
            " ORDER BY revision DESC LIMIT :limit",
            bindings,
        )
        handles = tuple(_info(row) for row in rows)
        total: Any = db.execute(
            "SELECT (SELECT coalesce(sum(handles), 0) FROM holdings"
            "   WHERE space = :space AND user = :user AND (:kind IS NULL OR kind = :kind))"
            " - (SELECT count(*) FROM handles INDEXED BY handles_by_expiry"
            "   WHERE expires_at <= :now AND deleted_at IS NULL"
            "   AND space = :space AND user = :user AND (:kind IS NULL OR kind = :kind))",
            bindings,
        ).get
        return StoredPage(handles, total)

    def search() -> StoredPage:
        rows: Any = db.execute(
            "SELECT handle, kind, title, version, revision, created_at, updated_at, expires_at, last_writer,"
            " size_bytes, outline FROM handles"
            " WHERE space = :space AND user = :user AND deleted_at IS NULL"
            " AND revision < coalesce(:before, 9223372036854775807)"
            " AND (:kind IS NULL OR kind = :kind) AND (expires_at IS NULL OR expires_at > :now)"
            " AND NOT EXISTS (SELECT 1 FROM json_each(:words) w WHERE instr(handles.words, w.value) = 0)"
            " ORDER BY revision DESC LIMIT :limit",
            bindings,
        )
        handles = tuple(_info(row) for row in rows)
        total: Any = db.execute(
            "SELECT count(*) FROM handles"
            " WHERE space = :space AND user = :user AND deleted_at IS NULL"
            " AND (:kind IS NULL OR kind = :kind) AND (expires_at IS NULL OR expires_at > :now)"
            " AND NOT EXISTS (SELECT 1 FROM json_each(:words) w WHERE instr(handles.words, w.value) = 0)",
            bindings,
        ).get
        return StoredPage(handles, total)

    return in_snapshot(db, search if words else browse)


def count(db: apsw.Connection, space: Space, user: str) -> tuple[int, int]:
    """Return the number of handles and the revision that it holds for. See `Backend.count`."""

    def work() -> tuple[int, int]:
        held: Any = db.execute(
            "SELECT coalesce(sum(handles), 0) FROM holdings WHERE space = ? AND user = ?", (space, user)
        ).get
        return held, newest_revision(db)

    return in_snapshot(db, work)


def recall(db: apsw.Connection, space: Space, user: str, token: CallToken) -> Repeated | None:
    """Return what the ledger says of a call."""
    row: Any = db.execute(
        "SELECT revision, receipt FROM ledger WHERE origin = ? AND sequence = ? AND space = ? AND user = ?",
        (token.origin, token.sequence, space, user),
    ).fetchone()
    return None if row is None else Repeated(*row)


def recall_request(
    db: apsw.Connection, space: Space, user: str, key: str, after: float
) -> KnownRequest | None:
    """Return what was answered under a request key. See `Backend.recall_request`."""
    row: Any = db.execute(
        "SELECT fingerprint, revision, receipt FROM request_keys"
        " WHERE space = ? AND user = ? AND request_key = ? AND at > ?",
        (space, user, key, after),
    ).fetchone()
    return None if row is None else KnownRequest(row[0], Repeated(*row[1:]))


def trash(db: apsw.Connection, space: Space, user: str, now: float, limit: int) -> tuple[Trashed, ...]:
    """Return deleted handles that can be brought back. See `Backend.trash`."""
    rows: Any = db.execute(
        "SELECT handle, kind, title, version, revision, created_at, updated_at, expires_at, last_writer,"
        " size_bytes, outline, deleted_at, trash_until FROM handles"
        " WHERE space = ? AND user = ? AND trash_until > ? ORDER BY deleted_at DESC, id DESC LIMIT ?",
        (space, user, now, limit),
    )
    return tuple(Trashed(_info(info), *times) for *info, times in ((*row[:11], row[11:]) for row in rows))


def opened(db: apsw.Connection) -> Opened:
    """Return where the store stands."""

    def work() -> Opened:
        newest_at: Any = db.execute("SELECT at FROM changes ORDER BY revision DESC LIMIT 1").get
        rows: Any = db.execute("SELECT name, value FROM meta")
        meta: dict[str, str] = dict(rows)
        noted: Any = db.execute("SELECT CAST(value AS REAL) FROM meta WHERE name = 'clock'").get
        noted_at = noted or 0.0
        return Opened(
            newest_revision(db),
            max(newest_at or 0.0, noted_at),
            noted_at,
            meta.get("boot", ""),
            meta.get("store", ""),
        )

    return in_snapshot(db, work)


def status(db: apsw.Connection, path: Path, now: float) -> BackendStatus:
    """Return size, counts and versions."""
    size_bytes = sum(
        file.stat().st_size for file in (path, path.with_name(path.name + "-wal")) if file.exists()
    )

    def work() -> BackendStatus:
        handles: Any = db.execute(
            "SELECT (SELECT coalesce(sum(handles), 0) FROM holdings)"
            " - (SELECT count(*) FROM handles INDEXED BY handles_by_expiry"
            "   WHERE expires_at <= ? AND deleted_at IS NULL)",
            (now,),
        ).get
        return BackendStatus(
            str(path), size_bytes, newest_revision(db), handles, SCHEMA_VERSION, apsw.sqlite_lib_version()
        )

    return in_snapshot(db, work)


def _info(row: Sequence[Any]) -> HandleInfo:
    handle, kind, title, version, revision, *rest = row
    return HandleInfo(HandleId(handle), kind, title, Version(version), Revision(revision), *rest)


def _changes(rows: Any) -> tuple[StoredChange, ...]:
    return tuple(StoredChange(*row) for row in rows)
