"""Opening a store's file: created whole or not at all, checked before anything in it is changed.

A new store is laid out under another name and renamed into place, so an empty or half made file under
the real name never is ours and is refused like any other stranger. The file is never opened by other
means than SQLite: closing any other descriptor would drop the locks that SQLite holds on it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from urllib.parse import quote

import apsw

from mcpstated.daemon.backends.faults import extended_code
from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.backends.schema import check_identity, create, migrate
from mcpstated.daemon.failpoints import failpoint

_SHARED_MEMORY_FAULTS = (apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP, apsw.SQLITE_IOERR_SHMOPEN)
"""What SQLite reports if the index of the write-ahead log finds no room on the disk."""
BUSY_TIMEOUT_MS = 5_000
"""How long a statement waits while another program holds the database's lock."""
AUTOCHECKPOINT_PAGES = 1_000
"""Pages in the write-ahead log after which a commit moves them into the database (4 MiB)."""
QUICK_CHECK_MAX_BYTES = 256 * 1024 * 1024
"""Larger files are not read through at every start; their pages are still checked as they are read."""


def prepare(path: Path, vfs: str | None = None) -> None:
    """Make sure that a database file is there, and that it is one of ours. Runs in any thread.

    Raises:
        StoreRefused: Something else is there. Nothing was changed.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except FileNotFoundError:
        _refuse_orphaned_log(path)
        _create_file(path, vfs)
        return
    except OSError as error:
        raise StoreRefused(f"{path} cannot be reached: {error.strerror}.") from error
    if not stat.S_ISREG(found.st_mode):
        raise StoreRefused(f"{path} is not a file; it was left as it is.")
    if found.st_size == 0:
        raise StoreRefused(f"{path} is empty, and a store never is; it was left as it is.")
    _check_stranger(path, vfs)


def configure_writer(db: apsw.Connection, path: Path, wal_bytes: int) -> None:
    """Check the open database, migrate it if it is older, and set what makes commits durable.

    Raises:
        StoreRefused: It is damaged, locked or too new. The file is as before, its log too.
    """
    failpoint("open.before_checks")
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    if _has_log(path):  # if the store is refused, closing it must not move the log into it
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.pragma("trusted_schema", "OFF")
    db.pragma("foreign_keys", "ON")
    try:
        check_identity(db, str(path))
        if path.stat().st_size <= QUICK_CHECK_MAX_BYTES:
            _refuse_damage(db, path)
        db.execute("BEGIN IMMEDIATE")  # another program's lock shows now, not at the first write
        db.execute("ROLLBACK")
        if db.pragma("journal_mode", "WAL") != "wal":
            raise StoreRefused(f"{path} cannot use a write-ahead log here: is it on a network file system?")
        migrate(db)
        _name_store(db)
    except apsw.Error as error:
        raise StoreRefused(_reason(path, error)) from error
    db.pragma("synchronous", "FULL")
    db.pragma("fullfsync", "ON")  # macOS: the drive's own cache as well; nothing elsewhere
    db.pragma("checkpoint_fullfsync", "ON")
    db.pragma("wal_autocheckpoint", AUTOCHECKPOINT_PAGES)
    db.pragma("journal_size_limit", wal_bytes)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    failpoint("open.after_settings")


def configure_reader(db: apsw.Connection) -> None:
    """Set up the connection that only reads."""
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    db.pragma("trusted_schema", "OFF")
    db.pragma("query_only", "ON")


def refusal(path: Path, error: Exception) -> StoreRefused:
    """Return why a database could not be opened, for the person who starts the daemon."""
    if isinstance(error, apsw.Error):
        return StoreRefused(_reason(path, error))
    return StoreRefused(f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}.")


def is_for_space(refused: StoreRefused) -> bool:
    """True if the store could be opened if the disk had a little more space."""
    cause = refused.__cause__
    if isinstance(cause, apsw.FullError):
        return True
    return isinstance(cause, apsw.IOError) and extended_code(cause) in _SHARED_MEMORY_FAULTS


def _check_stranger(path: Path, vfs: str | None) -> None:
    """Look at a file's header without touching its log, its locks or anything beside it."""
    try:
        db = apsw.Connection(
            f"file:{quote(str(path))}?mode=ro&immutable=1",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            vfs=vfs,
        )
        try:
            check_identity(db, str(path))
        finally:
            db.close()
    except apsw.Error as error:
        raise StoreRefused(_reason(path, error)) from error


def _create_file(path: Path, vfs: str | None) -> None:
    draft = path.with_name(path.name + ".new")
    failpoint("create.before_draft")
    try:
        _remove_draft(draft)
        db = apsw.Connection(str(draft), vfs=vfs)
        try:
            db.pragma("synchronous", "FULL")
            db.pragma("fullfsync", "ON")
            db.pragma("auto_vacuum", "INCREMENTAL")  # only an empty file takes it
            create(db)
            db.pragma("journal_mode", "WAL")
        finally:
            db.close()
        failpoint("create.after_draft")
        draft.rename(path)
        failpoint("create.after_rename")
        _flush_directory(path.parent)
        failpoint("create.after_flush")
    except (apsw.Error, OSError) as error:
        with contextlib.suppress(OSError):  # ours, and half done: on a full disk its space is needed
            _remove_draft(draft)
        raise refusal(path, error) from error


def _remove_draft(draft: Path) -> None:
    for leftover in (draft, *(_beside(draft, suffix) for suffix in ("-journal", "-wal", "-shm"))):
        leftover.unlink(missing_ok=True)


def _name_store(db: apsw.Connection) -> None:
    """Give the store its name among all stores, for ever; on a disk without room it goes without."""
    if db.execute("SELECT 1 FROM meta WHERE name = 'store'").get:
        return
    with contextlib.suppress(apsw.FullError):
        db.execute("INSERT INTO meta (name, value) VALUES ('store', ?)", (secrets.token_hex(8),))


def _refuse_orphaned_log(path: Path) -> None:
    if _has_log(path):
        raise StoreRefused(
            f"{path} is missing but its write-ahead log {_beside(path, '-wal')} is there. "
            "Put the database back, or move the log away."
        )


def _refuse_damage(db: apsw.Connection, path: Path) -> None:
    verdict = db.execute("PRAGMA quick_check(1)").get
    if verdict != "ok":
        raise StoreRefused(f"{path} is damaged ({verdict}); it was left as it is. Restore it from a backup.")


def _reason(path: Path, error: apsw.Error) -> str:
    if isinstance(error, apsw.NotADBError):
        return f"{path} is not a database; it was left as it is."
    if isinstance(error, apsw.CorruptError):
        return f"{path} is damaged ({error}); it was left as it is. Restore it from a backup."
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return f"{path} is locked by another program."
    if isinstance(error, apsw.FullError):
        return f"{path} cannot be set up: the disk is full."
    return f"{path} cannot be opened: {error}."


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _has_log(path: Path) -> bool:
    log = _beside(path, "-wal")
    return log.exists() and log.stat().st_size > 0


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
