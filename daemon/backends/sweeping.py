"""Removal in SQLite, in small steps: what expired, what was deleted, old history, the settled ledger.

Runs in the writer connection's worker thread, between two batches of the committer. Each call is one
short transaction, so that a sweep of a large store never keeps a caller waiting for long.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import apsw

from mcpstated.daemon.backends.interface import FoldPlan, Key, Removed, StoredCheckpoint
from mcpstated.daemon.backends.opening import BUSY_TIMEOUT_MS
from mcpstated.daemon.backends.writing import count_holding, in_transaction, newest_revision
from mcpstated.daemon.failpoints import failpoint
from mcpstated.daemon.logs import log_event
from mcpstated.protocol.store import HandleId, Space

log = logging.getLogger("mcpstated.engine")

NEAR = 0.125
"""A checkpoint that keeps at most this part too many changes is as good as one written just for a fold."""


def expire(db: apsw.Connection, now: float, limit: int, owner: tuple[Space, str] | None) -> list[Removed]:
    """Delete handles whose time has passed. See `Backend.expire`."""
    space, user = owner or (None, None)

    def work() -> list[Removed]:
        due: Any = db.execute(
            "SELECT id, space, user, handle, kind, version FROM handles"
            " WHERE expires_at IS NOT NULL AND expires_at <= :now AND deleted_at IS NULL"
            " AND (:space IS NULL OR (space = :space AND user = :user))"
            " ORDER BY expires_at LIMIT :limit",
            {"now": now, "space": space, "user": user, "limit": limit},
        ).fetchall()
        revision = newest_revision(db)
        removed = []
        for handle_id, its_space, its_user, handle, kind, version in due:
            revision += 1
            db.execute(
                "UPDATE handles"
                " SET version = ?, revision = ?, updated_at = ?, last_writer = '', deleted_at = ?"
                " WHERE id = ?",
                (version + 1, revision, now, now, handle_id),
            )
            db.execute(
                "INSERT INTO changes (revision, handle_id, version, action, body, writer, at)"
                " VALUES (?, ?, ?, 'expire', '{}', '', ?)",
                (revision, handle_id, version + 1, now),
            )
            key = Key(its_space, its_user, HandleId(handle))
            count_holding(db, key, kind, -1)
            removed.append(Removed(key, kind, version + 1, revision, now))
        return removed

    return in_transaction(db, work, step="expire")


def purge(db: apsw.Connection, now: float, limit: int) -> int:
    """Remove rows of deleted handles. See `Backend.purge`."""

    def work() -> int:
        removed = 0
        dead: Any = db.execute(
            "SELECT id FROM handles WHERE deleted_at IS NOT NULL AND coalesce(trash_until, 0) <= ?"
            " ORDER BY coalesce(trash_until, 0) LIMIT ?",
            (now, limit),
        ).fetchall()
        for (handle_id,) in dead:
            removed += _remove_history(db, handle_id, upto=None, limit=limit - removed)
            if removed >= limit:
                break
            db.execute("DELETE FROM handles WHERE id = ?", (handle_id,))
            removed += 1
        return removed

    return in_transaction(db, work, step="purge")


def empty_trash(db: apsw.Connection, space: Space, user: str, handle: HandleId | None, limit: int) -> int:
    """Let one deleted handle, or some, be purged. See `Backend.empty_trash`."""

    def work() -> int:
        db.execute(
            "UPDATE handles SET trash_until = NULL WHERE id IN (SELECT id FROM handles"
            " WHERE space = :space AND user = :user AND trash_until IS NOT NULL"
            " AND (:handle IS NULL OR handle = :handle) ORDER BY deleted_at LIMIT :limit)",
            {"space": space, "user": user, "handle": handle, "limit": limit},
        )
        return db.changes()

    return in_transaction(db, work, step="empty_trash")


def trim_trash(db: apsw.Connection, keep_handles: int, keep_bytes: int) -> int:
    """Let the oldest of every trash that is too large be purged. See `Backend.trim_trash`."""

    def work() -> int:
        db.execute(
            "UPDATE handles SET trash_until = NULL WHERE id IN ("
            "SELECT id FROM (SELECT id, row_number() OVER lately AS place,"
            " sum(size_bytes + history_bytes) OVER lately AS bytes FROM handles WHERE trash_until IS NOT NULL"
            " WINDOW lately AS (PARTITION BY space, user ORDER BY deleted_at DESC, id DESC))"
            " WHERE place > ? OR bytes > ?)",
            (keep_handles, keep_bytes),
        )
        return db.changes()

    return in_transaction(db, work, step="trim_trash")


def forget_old(db: apsw.Connection, before: float, limit: int) -> int:
    """Remove ledger rows that nobody will ask for. See `Backend.forget_old`."""

    def work() -> int:
        db.execute(
            "DELETE FROM ledger WHERE (origin, sequence, space, user) IN"
            " (SELECT origin, sequence, space, user FROM ledger WHERE at < ? LIMIT ?)",
            (before, limit),
        )
        forgotten = db.changes()
        db.execute(
            "DELETE FROM request_keys WHERE (space, user, request_key) IN"
            " (SELECT space, user, request_key FROM request_keys WHERE at < ? ORDER BY at LIMIT ?)",
            (before, limit),
        )
        return max(forgotten, db.changes())

    return in_transaction(db, work, step="forget_old")


def aged(db: apsw.Connection, before: float, limit: int) -> list[Key]:
    """Return handles with old changes. See `Backend.aged`.

    Revisions are in the order of time, so the oldest changes are the first rows of the log.
    """
    rows: Any = db.execute(
        "SELECT DISTINCT h.space, h.user, h.handle"
        " FROM (SELECT handle_id, at FROM changes ORDER BY revision LIMIT ?) c"
        " JOIN handles h ON h.id = c.handle_id"
        " WHERE c.at < ? AND (h.deleted_at IS NULL OR h.trash_until IS NOT NULL)",
        (limit, before),
    )
    return [Key(space, user, HandleId(handle)) for space, user, handle in rows]


def plan_fold(
    db: apsw.Connection, key: Key, keep_changes: int, keep_bytes: int, before: float
) -> FoldPlan | None:
    """Return where the history of a handle should begin. See `Backend.plan_fold`."""
    head = _head(db, key)
    if head is None:
        return None
    handle_id, version, oldest = head
    by_age: Any = db.execute(
        "SELECT coalesce(max(version), 0) FROM changes WHERE handle_id = ? AND at < ?", (handle_id, before)
    ).get
    by_bytes = _version_beyond(db, handle_id, keep_bytes)
    wanted = max(version - keep_changes, by_age, by_bytes)
    if wanted > oldest:
        existing: Any = db.execute(
            "SELECT max(version) FROM checkpoints WHERE handle_id = ? AND version <= ?", (handle_id, wanted)
        ).get
        if existing is None:  # damaged: there is nothing that the history could begin with
            return None
        is_near = by_bytes < wanted and wanted - existing <= keep_changes * NEAR
        if existing == wanted or (is_near and existing > oldest):
            return FoldPlan(existing, is_checkpointed=True)
        return FoldPlan(wanted, is_checkpointed=False)
    leftovers = db.execute(
        "SELECT 1 FROM changes WHERE handle_id = ? AND version <= ?", (handle_id, wanted)
    ).get
    return FoldPlan(oldest, is_checkpointed=True) if leftovers else None


def fold(
    db: apsw.Connection, key: Key, plan: FoldPlan, checkpoint: StoredCheckpoint | None, limit: int
) -> int | None:
    """Begin the history at the plan's version and remove what is older. See `Backend.fold`."""

    def work() -> int | None:
        head = _head(db, key)
        if head is None:
            return 0
        handle_id = head[0]
        if checkpoint is not None:
            _add_checkpoint(db, handle_id, checkpoint)
            failpoint("fold.after_checkpoint")
        if not db.execute(
            "SELECT 1 FROM checkpoints WHERE handle_id = ? AND version = ?", (handle_id, plan.version)
        ).get:
            log_event(log, "error", "fold found no checkpoint to begin with", version=plan.version)
            return 0
        db.execute(
            "UPDATE handles SET oldest_version = max(oldest_version, ?) WHERE id = ?",
            (plan.version, handle_id),
        )
        failpoint("fold.after_start")
        if _remove_history(db, handle_id, upto=plan.version, limit=limit) >= limit:
            return None
        kept: Any = db.execute(
            "UPDATE handles SET history_bytes ="
            " (SELECT coalesce(sum(octet_length(body)), 0) FROM changes WHERE handle_id = :id)"
            " + (SELECT coalesce(sum(octet_length(document)), 0) FROM checkpoints"
            "    WHERE handle_id = :id AND version > oldest_version)"
            " WHERE id = :id RETURNING history_bytes",
            {"id": handle_id},
        ).fetchall()
        return int(kept[0][0])

    return in_transaction(db, work, step="fold")


def _add_checkpoint(db: apsw.Connection, handle_id: int, checkpoint: StoredCheckpoint) -> None:
    db.execute(
        "INSERT OR IGNORE INTO checkpoints"
        " (handle_id, version, revision, title, expires_at, ttl_days, writer, at, document)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            handle_id,
            checkpoint.version,
            checkpoint.revision,
            checkpoint.title,
            checkpoint.expires_at,
            checkpoint.ttl_days,
            checkpoint.writer,
            checkpoint.at,
            checkpoint.document,
        ),
    )


def tidy(db: apsw.Connection, path: Path, wal_bytes: int) -> None:
    """Fold the write-ahead log back into the database if it is longer than its limit. See `Backend.tidy`."""
    wal = path.with_name(path.name + "-wal")
    try:
        size_bytes = wal.stat().st_size
    except FileNotFoundError:
        return
    if size_bytes <= wal_bytes:
        return
    failpoint("tidy.before_checkpoint")
    db.set_busy_timeout(0)  # writers must not wait for somebody's long read; the next pass tries again
    try:
        is_busy, _frames, _moved = next(iter(db.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
    finally:
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
    failpoint("tidy.after_checkpoint")
    if is_busy:
        log_event(log, "warning", "write-ahead log was kept long by an open read", size_bytes=size_bytes)


def _remove_history(db: apsw.Connection, handle_id: int, *, upto: int | None, limit: int) -> int:
    """Remove changes up to a version and checkpoints before it, or all; return the number of rows."""
    if limit <= 0:
        return 0
    db.execute(
        "DELETE FROM changes WHERE revision IN (SELECT revision FROM changes"
        " WHERE handle_id = :id AND (:upto IS NULL OR version <= :upto) ORDER BY version LIMIT :limit)",
        {"id": handle_id, "upto": upto, "limit": limit},
    )
    removed = db.changes()
    if removed < limit:
        db.execute(
            "DELETE FROM checkpoints WHERE rowid IN (SELECT rowid FROM checkpoints"
            " WHERE handle_id = :id AND (:upto IS NULL OR version < :upto) ORDER BY version LIMIT :limit)",
            {"id": handle_id, "upto": upto, "limit": limit - removed},
        )
        removed += db.changes()
    return removed


def _version_beyond(db: apsw.Connection, handle_id: int, keep_bytes: int) -> int:
    """Return the newest version whose change does not fit into `keep_bytes` any more; 0 if all do."""
    kept = 0
    rows: Any = db.execute(
        "SELECT c.version, octet_length(c.body) + coalesce(octet_length(p.document), 0)"
        " FROM changes c LEFT JOIN checkpoints p ON p.handle_id = c.handle_id AND p.version = c.version"
        " WHERE c.handle_id = ? ORDER BY c.version DESC",
        (handle_id,),
    )
    for version, size_bytes in rows:
        kept += size_bytes
        if kept > keep_bytes:
            rows.close()
            return int(version)
    return 0


def _head(db: apsw.Connection, key: Key) -> tuple[int, int, int] | None:
    rows: Any = db.execute(
        "SELECT id, version, oldest_version FROM handles"
        " WHERE space = ? AND user = ? AND handle = ? AND (deleted_at IS NULL OR trash_until IS NOT NULL)",
        (key.space, key.user, key.handle),
    ).fetchall()
    return rows[0] if rows else None
