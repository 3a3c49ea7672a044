"""A backup: a consistent copy of a store that may be in use, verified, compressed, there whole or not at all.

    SQLite's backup API, one read transaction -> .copy -> verify -> .part -> flushed -> its name

Writers go on meanwhile. What a crash leaves are files that end in `.copy` or `.part`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import apsw

from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.backends.opening import refusal
from mcpstated.daemon.backends.writing import newest_revision
from mcpstated.daemon.failpoints import failpoint
from mcpstated.daemon.maintenance.files import new_file, open_read_only, pack, put_in_place, remove
from mcpstated.daemon.maintenance.rotation import backup_name
from mcpstated.daemon.maintenance.verify import Verdict, verify_alone
from mcpstated.protocol.directories import make_private_directory
from mcpstated.protocol.errors import InvalidInput

_BUSY_TRIES = 50


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was made."""

    path: str
    size_bytes: int
    revision: int
    handles: int


def back_up(database: Path, target: Path, *, may_replace: bool = False) -> Backup:
    """Back a store up into a file: compressed, unless its name ends with `.db`.

    Raises:
        StoreRefused: It is no store of ours, or it is damaged; then there is no backup.
        InvalidInput: There is a file of that name, and it may not be replaced.
        OSError: The disk is full, or the target cannot be written.

    Durability: Returns once the file and its name are flushed to the disk.
    """
    copy, part = (target.with_name(target.name + suffix) for suffix in (".copy", ".part"))
    refuse_own_files(database, target)
    if target.exists() and not may_replace:
        raise _there_already(target)
    try:
        remove(copy)
        failpoint("backup.before_copy")
        copy_store(database, copy)
        failpoint("backup.after_copy")
        verdict = verify_alone(copy)
        _refuse_unsound(database, verdict)
        pack(copy, part)
        failpoint("backup.before_rename")
        put_in_place(part, target, may_replace=may_replace)
        failpoint("backup.after_rename")
    except FileExistsError as error:
        raise _there_already(target) from error
    finally:
        remove(copy, part)
    return Backup(str(target), target.stat().st_size, verdict.revision, verdict.handles)


def refuse_own_files(database: Path, target: Path) -> None:
    """Refuse to write over a store or what lies beside it. Raises: InvalidInput."""
    if not target.parent.is_dir():
        raise InvalidInput(f"There is no directory {target.parent}.", field="file")
    if target.parent.samefile(database.parent) and target.name.startswith(database.name):
        raise InvalidInput(f"{target} is a name that the store's own files have.", field="file")


def back_up_beside(database: Path, directory: Path, *, now: float) -> Backup:
    """Back a store up under a name that says when and of which revision, in a private directory.

    Raises:
        As `back_up`, which makes it.
    """
    make_private_directory(str(directory))
    with open_read_only(database) as db:
        revision = newest_revision(db)
    return back_up(database, directory / backup_name(now, revision), may_replace=True)


def copy_store(database: Path, copy: Path) -> None:
    """Copy a store that may be in use, its log included, into one file. Raises: StoreRefused."""
    with open_read_only(database) as source:
        with new_file(copy):
            pass  # private from its first byte, whatever the caller's umask
        try:
            target = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                _copy_pages(source, target)
                target.pragma("journal_mode", "DELETE")  # one file; whoever opens it says what it wants
            finally:
                target.close()
        except apsw.Error as error:
            raise refusal(copy, error) from error


def _copy_pages(source: apsw.Connection, target: apsw.Connection) -> None:
    for attempt in range(_BUSY_TRIES):
        try:
            with target.backup("main", source, "main") as backup:
                backup.step(-1)  # all in one step, so in one snapshot
        except (apsw.BusyError, apsw.LockedError):
            if attempt == _BUSY_TRIES - 1:
                raise
        else:
            return


def _refuse_unsound(database: Path, verdict: Verdict) -> None:
    if not verdict.is_sound:
        first = verdict.problems[0]
        raise StoreRefused(
            f"{database} is damaged ({first.where}: {first.what}), so no backup was made of it. "
            "`mcpstated verify` tells more; earlier backups are untouched."
        )


def _there_already(target: Path) -> InvalidInput:
    return InvalidInput(
        f"{target} is there already.", field="file", hint="Choose another name, or say --replace."
    )
