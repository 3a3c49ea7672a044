"""Opening a store's file: created whole or not at all, checked before anything in it is changed.

A new store is laid out under another name and renamed into place, so an empty or half made file under
the real name never is ours and is refused like any other stranger. The file is never opened by other
means than SQLite: closing any other descriptor would drop the locks that SQLite holds on it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
import struct
from pathlib import Path

import apsw

from mcpstated.daemon.backends.faults import extended_code
from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.backends.kept_copy import keep_copy, remove_copy, remove_old_copies
from mcpstated.daemon.backends.schema import check_identity, check_numbers, create, migrate, pending
from mcpstated.daemon.failpoints import failpoint
from mcpstated.daemon.logs import log_event

log = logging.getLogger("mcpstated.engine")

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES, _USER_VERSION_OFFSET, _APPLICATION_ID_OFFSET = 100, 60, 68
"""Where a database file says what it is (https://sqlite.org/fileformat2.html, section 1.3)."""
_SHARED_MEMORY_FAULTS = (apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP, apsw.SQLITE_IOERR_SHMOPEN)
"""What SQLite reports if the index of the write-ahead log finds no room on the disk."""
BUSY_TIMEOUT_MS = 5_000
"""How long a statement waits while another program holds the database's lock."""
AUTOCHECKPOINT_PAGES = 1_000
"""Pages in the write-ahead log after which a commit moves them into the database (4 MiB)."""
RESTORE_SUFFIX = ".restore"
"""What the name of a restored store adds until it is in place; meanwhile the store is not opened."""
QUICK_CHECK_MAX_BYTES = 256 * 1024 * 1024
"""Larger files are not read through at every start; their pages are still checked as they are read."""


def prepare(path: Path, vfs: str | None = None, creates: bool = True) -> None:
    """Make sure that a database file is there, and that it is one of ours. Runs in any thread.

    Args:
        creates: False to refuse to make one.

    Raises:
        StoreRefused: Something else is there, or nothing where something must be. Nothing was changed.
    """
    _refuse_half_restored(path)
    try:
        if creates:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except FileNotFoundError:
        _refuse_orphaned_log(path)
        if not creates:
            raise StoreRefused(
                f"{path}, which a client used before, is gone. Put it back; or start that client anew, or "
                "run `mcpstated daemon`, to begin with an empty store."
            ) from None
        _create_file(path, vfs)
        return
    except OSError as error:
        raise StoreRefused(f"{path} cannot be reached: {error.strerror}.") from error
    if not stat.S_ISREG(found.st_mode):
        raise StoreRefused(f"{path} is not a file; it was left as it is.")
    if found.st_nlink > 1:  # under each name it would have a log of its own, and none knows of the others
        raise StoreRefused(
            f"{path} has {found.st_nlink} names (hard links), and changes made under one would be lost under "
            "another. Remove the other names, or copy the file. It was left as it is."
        )
    check_header(path)
    _forget_memory_of_log(path)


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
        _bring_up_to_date(db, path)
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


def _bring_up_to_date(db: apsw.Connection, path: Path) -> None:
    """Migrate an older store, with a copy of it kept; one that could not be migrated needs none."""
    store, versions = _beside(path, ""), pending(db)
    if versions is None:
        remove_old_copies(store)
        return
    before, after = versions
    copy = keep_copy(db, store, after)
    try:
        migrate(db)
    except BaseException:
        remove_copy(copy)
        raise
    log_event(log, "info", "schema migrated", from_version=before, to_version=after, copy=str(copy))


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


def check_header(path: Path, named: Path | None = None) -> None:
    """Look whether a file says that it is a store of ours, without touching anything beside it.

    Not through SQLite: after a full disk kept the log from being folded, the database alone looks damaged.

    Args:
        named: What to call it.

    Raises:
        StoreRefused: It is something else, or too new.
    """
    named = named or path
    try:
        with path.open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
    except OSError as error:
        raise StoreRefused(f"{named} cannot be opened: {error.strerror}. It was left as it is.") from error
    if not header:
        raise StoreRefused(f"{named} is empty, and a store never is; it was left as it is.")
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        raise StoreRefused(f"{named} is not a database; it was left as it is.")
    (version,) = struct.unpack_from(">i", header, _USER_VERSION_OFFSET)
    (application_id,) = struct.unpack_from(">i", header, _APPLICATION_ID_OFFSET)
    check_numbers(application_id, version, str(named))


def _forget_memory_of_log(path: Path) -> None:
    """Let the log that a crash left be read from the disk, not from the system's memory of it.

    After a failed flush the system may hold in memory what never got to the disk, and call it clean. If
    such a commit were believed now, later ones would stand on it, and a power cut would take them all.
    """
    if not _has_log(path) or not hasattr(os, "posix_fadvise"):
        return
    log = _beside(path, "-wal")
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)  # what can still be written is kept in memory until it is
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreRefused(
            f"{log} cannot be read back from the disk: {error.strerror}. It was left as it is."
        ) from error


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
        _flush_parents(path.parent)
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


def _refuse_half_restored(path: Path) -> None:
    restored = _beside(path, RESTORE_SUFFIX)
    if restored.exists():
        raise StoreRefused(
            f"A restore of {path} was interrupted. Run `mcpstated restore` again to finish it; or, to go on "
            f"with the store as it was, remove {restored}."
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
    if isinstance(error, apsw.ReadOnlyError):
        return f"{path} cannot be written to: it, its directory or the disk is read-only."
    if isinstance(error, apsw.CantOpenError) and path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return f"{path} cannot be opened: this user may not read and write it. It was left as it is."
    return f"{path} cannot be opened: {error}."


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_parents(directory: Path) -> None:
    """Make the directory's own name last, as far up as this user may: it may have been made just now."""
    with contextlib.suppress(OSError):
        for parent in directory.absolute().parents:
            _flush_directory(parent)


def _has_log(path: Path) -> bool:
    log = _beside(path, "-wal")
    return log.exists() and log.stat().st_size > 0


def _beside(path: Path, suffix: str) -> Path:
    if path.is_symlink():  # SQLite goes by the file that the link leads to
        path = path.resolve()
    return path.with_name(path.name + suffix)
