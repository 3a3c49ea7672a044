"""Compare-and-append in SQLite: one batch, one transaction, one flush to disk.

Runs in the writer connection's worker thread. Revisions are given out here: the write lock is held
from the first statement, so the newest revision plus one is free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import apsw

from mcpstated.daemon.backends.faults import CommitFailed, refined
from mcpstated.daemon.backends.interface import (
    COMES_AND_GOES,
    Applied,
    Conflict,
    History,
    Key,
    NewChange,
    Outcome,
    Repeated,
)
from mcpstated.daemon.failpoints import failpoint

if TYPE_CHECKING:
    from mcpstated.protocol.store import RequestKey

T = TypeVar("T")


def in_transaction(db: apsw.Connection, work: Callable[[], T], *, step: str) -> T:
    """Run `work` in a write transaction: committed when it returns, rolled back whatever it raises.

    Args:
        step: Its name among the failpoints.

    Raises:
        CommitFailed: The disk failed in the commit itself. Not if it said that it has no space or is
            read-only: then the end of the transaction never got into the log.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        failpoint(step, "after_begin")
        result = work()
        failpoint(step, "before_commit")
        try:
            db.execute("COMMIT")
        except apsw.IOError as error:
            if (exact := refined(db, error)) is not error:
                raise exact from error
            raise CommitFailed(error) from error
    except BaseException:
        if db.in_transaction:  # a full disk may have ended it already
            db.execute("ROLLBACK")
        raise
    failpoint(step, "after_commit")
    return result


def overwrite_failed(db: apsw.Connection) -> bool:
    """Write over what a failed commit left in the log; False if the disk goes on failing.

    SQLite forgets such a commit but leaves it in the file, where the next opening would find it if nothing
    was written since. The next transaction begins at the same place: once it is on the disk, the failed
    one is nowhere.
    """
    try:
        in_transaction(
            db,
            lambda: db.execute(
                "INSERT INTO meta (name, value) VALUES ('failed_commits', '1') ON CONFLICT (name) DO UPDATE"
                " SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)"
            ),
            step="overwrite",
        )
    except (CommitFailed, apsw.Error):
        return False
    return True


def append(db: apsw.Connection, changes: Sequence[NewChange], settled: Mapping[bytes, int]) -> list[Outcome]:
    """Append the changes whose base is the newest version. See `Backend.append`."""

    def work() -> list[Outcome]:
        revision = newest_revision(db)
        outcomes: list[Outcome] = []
        broken: set[Key] = set()
        for change in changes:
            outcome = Conflict() if change.key in broken else _append_one(db, change, revision + 1)
            if isinstance(outcome, Applied):
                revision = outcome.revision
            else:
                broken.add(change.key)
            outcomes.append(outcome)
        _forget_settled(db, settled)
        return outcomes

    return in_transaction(db, work, step="append")


def forget_settled(db: apsw.Connection, settled: Mapping[bytes, int]) -> None:
    """Remove settled ledger rows. See `Backend.forget_settled`."""
    in_transaction(db, lambda: _forget_settled(db, settled), step="forget_settled")


def note_time(db: apsw.Connection, now: float, boot: str) -> None:
    """Keep the clock's time. See `Backend.note_time`."""

    def work() -> None:
        db.execute(
            "INSERT INTO meta (name, value) VALUES ('clock', ?) ON CONFLICT (name) DO UPDATE"
            " SET value = excluded.value WHERE CAST(value AS REAL) < CAST(excluded.value AS REAL)",
            (repr(now),),
        )
        if db.changes():
            db.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('boot', ?)", (boot,))

    in_transaction(db, work, step="note_time")


def _forget_settled(db: apsw.Connection, settled: Mapping[bytes, int]) -> None:
    for origin, floor in settled.items():
        db.execute("DELETE FROM ledger WHERE origin = ? AND sequence < ?", (origin, floor))


def newest_revision(db: apsw.Connection) -> int:
    """Return the highest revision ever given out; 0 in a new store."""
    for (revision,) in db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'"):
        return int(revision)
    return 0


def _append_one(db: apsw.Connection, change: NewChange, revision: int) -> Outcome:
    token = change.token
    if token is not None:
        for known, receipt in db.execute(
            "SELECT revision, receipt FROM ledger"
            " WHERE origin = ? AND sequence = ? AND space = ? AND user = ?",
            (token.origin, token.sequence, change.key.space, change.key.user),
        ):
            return Repeated(int(known), str(receipt))
    handle_id = _create(db, change, revision) if change.base == 0 else _advance(db, change, revision)
    if handle_id is None:
        return Conflict()
    failpoint("append.after_handle")
    info = change.info
    if (difference := COMES_AND_GOES.get(change.action)) is not None:
        count_holding(db, change.key, info.kind, difference)
    if change.history is None:
        db.execute(
            "INSERT INTO changes (revision, handle_id, version, action, body, writer, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                revision,
                handle_id,
                info.version,
                change.action,
                change.body,
                info.last_writer,
                info.updated_at,
            ),
        )
    else:
        revision = _add_history(db, handle_id, change.history, revision)
    failpoint("append.after_change")
    if change.document is not None:
        db.execute(
            "INSERT INTO checkpoints"
            " (handle_id, version, revision, title, expires_at, ttl_days, writer, at, document)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                handle_id,
                info.version,
                revision,
                info.title,
                info.expires_at,
                change.ttl_days,
                info.last_writer,
                info.updated_at,
                change.document,
            ),
        )
        failpoint("append.after_checkpoint")
    if token is not None:
        db.execute(
            "INSERT INTO ledger (origin, sequence, space, user, revision, receipt, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                token.origin,
                token.sequence,
                change.key.space,
                change.key.user,
                revision,
                change.receipt,
                info.updated_at,
            ),
        )
        failpoint("append.after_ledger")
    if change.request is not None:
        keep_request(db, change.key, change.request, change.receipt or "", revision, info.updated_at)
    return Applied(revision)


def note_request(db: apsw.Connection, key: Key, request: RequestKey, receipt: str, now: float) -> None:
    """Keep the answer to a call without effect. See `Backend.note_request`."""
    in_transaction(
        db,
        lambda: keep_request(db, key, request, receipt, newest_revision(db), now),
        step="note_request",
    )


def keep_request(
    db: apsw.Connection, key: Key, request: RequestKey, receipt: str, revision: int, at: float
) -> None:
    """Keep an answer under its request key, in the place of one that is too old to be asked for."""
    db.execute(
        "INSERT OR REPLACE INTO request_keys (space, user, request_key, fingerprint, revision, receipt, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (key.space, key.user, request.key, request.fingerprint, revision, receipt, at),
    )


def count_holding(db: apsw.Connection, key: Key, kind: str, difference: int) -> None:
    """Count a handle that came or went."""
    db.execute(
        "INSERT INTO holdings (space, user, kind, handles) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET handles = handles + excluded.handles",
        (key.space, key.user, kind, difference),
    )


def _create(db: apsw.Connection, change: NewChange, revision: int) -> int | None:
    """Insert the handle's row; None if the name is taken, by a deleted handle too."""
    info, key = change.info, change.key
    rows = db.execute(
        "INSERT INTO handles"
        " (space, user, handle, kind, title, version, revision, created_at, updated_at, expires_at,"
        " ttl_days, last_writer, size_bytes, outline, words, oldest_version, history_bytes)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING RETURNING id",
        (
            key.space,
            key.user,
            key.handle,
            info.kind,
            info.title,
            info.version,
            revision,
            info.created_at,
            info.updated_at,
            info.expires_at,
            change.ttl_days,
            info.last_writer,
            info.size_bytes,
            info.outline,
            change.words,
            info.version,
            change.stored_bytes,
        ),
    )
    return _only_id(rows)


def _add_history(db: apsw.Connection, handle_id: int, history: History, revision: int) -> int:
    """Store the past of a new handle, from a revision on; return the newest revision."""
    first = history.checkpoints[0]
    revisions = {change.version: revision + place for place, change in enumerate(history.changes)}
    db.executemany(
        "INSERT INTO changes (revision, handle_id, version, action, body, writer, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                revisions[change.version],
                handle_id,
                change.version,
                change.action,
                change.body,
                change.writer,
                change.at,
            )
            for change in history.changes
        ],
    )
    db.executemany(
        "INSERT INTO checkpoints"
        " (handle_id, version, revision, title, expires_at, ttl_days, writer, at, document)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                handle_id,
                checkpoint.version,
                revisions.get(checkpoint.version, revision),
                checkpoint.title,
                checkpoint.expires_at,
                checkpoint.ttl_days,
                checkpoint.writer,
                checkpoint.at,
                checkpoint.document,
            )
            for checkpoint in history.checkpoints
        ],
    )
    newest = revision + len(history.changes) - 1
    db.execute(
        "UPDATE handles SET revision = ?, oldest_version = ? WHERE id = ?", (newest, first.version, handle_id)
    )
    return newest


def _advance(db: apsw.Connection, change: NewChange, revision: int) -> int | None:
    """Move the handle's row to the new version; None if its version is not the base."""
    info, key = change.info, change.key
    if change.action == "delete":
        rows = db.execute(
            "UPDATE handles SET version = ?, revision = ?, updated_at = ?, last_writer = ?, deleted_at = ?,"
            " trash_until = ?"
            " WHERE space = ? AND user = ? AND handle = ? AND version = ? AND deleted_at IS NULL"
            " RETURNING id",
            (
                info.version,
                revision,
                info.updated_at,
                info.last_writer,
                info.updated_at,
                change.trash_until,
                key.space,
                key.user,
                key.handle,
                change.base,
            ),
        )
    elif change.action == "undelete":
        rows = db.execute(
            "UPDATE handles SET version = ?, revision = ?, updated_at = ?, last_writer = ?, expires_at = ?,"
            " deleted_at = NULL, trash_until = NULL, history_bytes = history_bytes + ?"
            " WHERE space = ? AND user = ? AND handle = ? AND version = ? AND trash_until > ?"
            " RETURNING id",
            (
                info.version,
                revision,
                info.updated_at,
                info.last_writer,
                info.expires_at,
                change.stored_bytes,
                key.space,
                key.user,
                key.handle,
                change.base,
                info.updated_at,
            ),
        )
    elif change.action == "patch":  # the hot path: what it leaves alone is not written, nor are its indexes
        rows = db.execute(
            "UPDATE handles SET version = ?, revision = ?, updated_at = ?, last_writer = ?, size_bytes = ?,"
            " outline = ?, history_bytes = history_bytes + ?"
            " WHERE space = ? AND user = ? AND handle = ? AND version = ? AND deleted_at IS NULL"
            " RETURNING id",
            (
                info.version,
                revision,
                info.updated_at,
                info.last_writer,
                info.size_bytes,
                info.outline,
                change.stored_bytes,
                key.space,
                key.user,
                key.handle,
                change.base,
            ),
        )
    else:
        rows = db.execute(
            "UPDATE handles SET version = ?, revision = ?, updated_at = ?, last_writer = ?, size_bytes = ?,"
            " outline = ?, history_bytes = history_bytes + ?, title = ?, words = ?, expires_at = ?,"
            " ttl_days = ?"
            " WHERE space = ? AND user = ? AND handle = ? AND version = ? AND deleted_at IS NULL"
            " RETURNING id",
            (
                info.version,
                revision,
                info.updated_at,
                info.last_writer,
                info.size_bytes,
                info.outline,
                change.stored_bytes,
                info.title,
                change.words,
                info.expires_at,
                change.ttl_days,
                key.space,
                key.user,
                key.handle,
                change.base,
            ),
        )
    return _only_id(rows)


def _only_id(rows: apsw.Cursor) -> int | None:
    found: list[tuple[int]] = list(rows)
    return found[0][0] if found else None
