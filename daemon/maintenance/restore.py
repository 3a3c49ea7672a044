"""Putting a backup in the place of a store, with the store that was there kept aside.

    FILE -> state.db.restore.part -> verified -> state.db.restore      the old store is untouched
    state.db -> also state.db.replaced-TIME, its log folded in         both names, one file
    state.db.restore -> state.db                                       one rename

While `state.db.restore` lies there no daemon opens the store: a crash in between leaves the old store or the
new one, never one beside the other's log, and `mcpstated restore` again finishes it. Whoever calls holds the
locks of the daemon and of its start.
"""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

import apsw

from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.backends.opening import RESTORE_SUFFIX, check_header, refusal
from mcpstated.daemon.failpoints import failpoint
from mcpstated.daemon.maintenance.backup import copy_store
from mcpstated.daemon.maintenance.files import flush_directory, remove, unpack
from mcpstated.daemon.maintenance.verify import Verdict, verify_alone
from mcpstated.protocol.errors import InvalidInput

_LOG_SUFFIXES = ("-wal", "-shm")


def prepare(source: Path, database: Path) -> Verdict:
    """Unpack a backup beside the store and examine it. The store may be in use: it is not touched.

    Raises:
        StoreRefused: The backup is damaged, too new, or no store of ours.
        InvalidInput: It is the store itself, or a compressed file that is damaged.
        OSError: It cannot be read, or there is no room for it.
    """
    if database.exists() and source.samefile(database):
        raise InvalidInput(f"{source} is the store itself.", field="file")
    part = _beside(database, RESTORE_SUFFIX + ".part")
    try:
        failpoint("restore.before_unpack")
        if _beside(source, "-wal").exists():  # not a backup but a store: the newest of it is in its log
            remove(part)
            copy_store(source, part)
        else:
            unpack(source, part)
        verdict = verify_alone(part, named=source)
        if not verdict.is_sound:
            first = verdict.problems[0]
            raise StoreRefused(
                f"{source} is damaged ({first.where}: {first.what}). Nothing was changed; try another one."
            )
        _rename_store(part)
        failpoint("restore.after_unpack")
    except BaseException:
        remove(part)
        raise
    return verdict


def exchange(database: Path, *, now: float) -> Path | None:
    """Put what was prepared in the place of the store, which nobody has open.

    Returns:
        Where the store that was there is kept; None if there was none.

    Raises:
        OSError: The disk failed. The old store or the new one is there, whole.
    """
    part, ready = _beside(database, RESTORE_SUFFIX + ".part"), _beside(database, RESTORE_SUFFIX)
    part.rename(ready)
    flush_directory(database.parent)
    failpoint("restore.before_aside")
    aside = _keep_aside(database, now) if database.exists() else None
    failpoint("restore.before_rename")
    ready.rename(database)
    flush_directory(database.parent)
    failpoint("restore.after_rename")
    return aside


def discard(database: Path) -> None:
    """Remove what `prepare` made, if it is not to be put in place."""
    remove(_beside(database, RESTORE_SUFFIX + ".part"))


def _keep_aside(database: Path, now: float) -> Path:
    """Give the old store another name too, log included, and let the log go from its old place."""
    _fold_log(database)
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    aside, number = _beside(database, f".replaced-{stamp}"), 1
    while aside.exists():
        number += 1
        aside = _beside(database, f".replaced-{stamp}-{number}")
    _name_also(database, aside)
    log = _beside(database, "-wal")
    if log.exists():  # the store is damaged, or its disk full: it is kept as it is, in two files
        _name_also(log, _beside(aside, "-wal"))
    flush_directory(database.parent)
    failpoint("restore.after_aside")
    remove(*(_beside(database, suffix) for suffix in _LOG_SUFFIXES))
    flush_directory(database.parent)
    return aside


def _name_also(path: Path, other: Path) -> None:
    """Give a file a second name; the only one where the file system knows no second names."""
    try:
        os.link(path, other)
    except OSError:
        path.rename(other)


def _fold_log(database: Path) -> None:
    """Move what is in the log into the store, if it can be done; what is no store of ours stays as it is."""
    try:
        check_header(database)  # SQLite writes the log over whatever it is told to open
        db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            db.close()
    except (apsw.Error, StoreRefused):
        return


def _rename_store(part: Path) -> None:
    """Give the restored store a name of its own, so that clients of the old one hear that it is another."""
    try:
        db = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.pragma("journal_mode", "DELETE")
            db.pragma("synchronous", "FULL")
            db.execute("UPDATE meta SET value = ? WHERE name = 'store'", (secrets.token_hex(8),))
        finally:
            db.close()
    except apsw.Error as error:
        raise refusal(part, error) from error


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
