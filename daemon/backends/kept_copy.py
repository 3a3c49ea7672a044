"""The copy of a store that is kept before its schema is changed: the way back to the older program.

    state.db --one read transaction--> state.db.before-v2.new --flushed, renamed--> state.db.before-v2

It is made through the connection that is about to migrate, so nothing else opens the store, and before that
connection has changed a row. One copy is kept, the newest, and that for `KEPT_DAYS`: what a person deleted
must not live on in it for ever. Every function here runs in a connection's worker thread.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import apsw

from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.failpoints import failpoint

INFIX = ".before-v"
"""What the copy's name adds to the store's, with the version of the schema that was to come."""
KEPT_DAYS = 30
"""How old a copy may get; the first start after that removes it."""
_SECONDS_PER_DAY = 86_400
_DRAFT_SUFFIX = ".new"


def keep_copy(db: apsw.Connection, path: Path, version: int) -> Path:
    """Copy a store that is about to be brought to a schema version, and return the copy's path.

    Raises:
        StoreRefused: The disk has no room for it.
        apsw.Error, OSError: It cannot be written.

    Durability: Returns once the copy and its name are flushed to the disk.
    """
    copy = path.with_name(f"{path.name}{INFIX}{version}")
    draft = copy.with_name(copy.name + _DRAFT_SUFFIX)
    failpoint("migration.before_copy")
    remove_copy(copy)  # of a migration that was given up, or undone: what it shows is older than the store
    try:
        _copy(db, draft)
        failpoint("migration.after_copy")
        draft.rename(copy)
        _flush_directory(path.parent)
    except apsw.FullError:
        _remove(draft)
        raise _no_room(db, path, version) from None
    except BaseException:
        _remove(draft)
        raise
    for older in _copies(path):
        if older != copy:
            _remove(older)
    failpoint("migration.after_keeping")
    return copy


def remove_copy(copy: Path) -> None:
    """Remove a copy, and what a crash left of it."""
    _remove(copy)
    _remove(copy.with_name(copy.name + _DRAFT_SUFFIX))


def remove_old_copies(path: Path) -> None:
    """Remove copies of a store that are older than is allowed."""
    for copy in _copies(path):
        with contextlib.suppress(OSError):
            if time.time() - copy.stat().st_mtime > KEPT_DAYS * _SECONDS_PER_DAY:
                copy.unlink()


def _copies(path: Path) -> list[Path]:
    pattern = re.compile(re.escape(path.name + INFIX) + r"[0-9]+(?:" + re.escape(_DRAFT_SUFFIX) + r")?")
    return [found for found in path.parent.iterdir() if pattern.fullmatch(found.name)]


def _no_room(db: apsw.Connection, path: Path, version: int) -> StoreRefused:
    size_bytes = db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").get
    return StoreRefused(
        f"{path} is to be brought to schema version {version}, but the disk has no room for the copy of it "
        f"that is kept, which takes {size_bytes:,} bytes. Free some space and start again, or go on with the "
        "older mcpstated. The file was left as it is."
    )


def _copy(db: apsw.Connection, draft: Path) -> None:
    target = apsw.Connection(str(draft), vfs=db.open_vfs)
    try:
        target.pragma("synchronous", "FULL")
        target.pragma("fullfsync", "ON")
        with target.backup("main", db, "main") as backup:
            backup.step(-1)  # all in one step, so in one snapshot
        target.pragma("journal_mode", "DELETE")  # one file, that can be put back by giving it another name
    finally:
        target.close()


def _remove(path: Path) -> None:
    for leftover in (path, *(path.with_name(path.name + suffix) for suffix in ("-journal", "-wal", "-shm"))):
        with contextlib.suppress(OSError):
            leftover.unlink()


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
