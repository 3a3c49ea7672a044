"""What went wrong in the storage, told from SQLite's errors, and what the caller of the store is told.

The text of an error stays in the log: it may name paths. Every answer says whether something was stored.
"""

from __future__ import annotations

import errno
import os

import apsw

from mcpstated.daemon.backends.reserve import NO_SPACE
from mcpstated.protocol.errors import BackendError, McpStateError, OutcomeUnknown, StorageFull


class CommitFailed(Exception):
    """The disk failed during the commit: what it has of the transaction may come back after a crash."""

    def __init__(self, fault: apsw.Error) -> None:
        super().__init__(str(fault))
        self.fault = fault


def extended_code(error: apsw.Error) -> int:
    """Return SQLite's number for exactly this error; 0 if it did not come from there."""
    return int(getattr(error, "extendedresult", 0))


def refined(db: apsw.Connection, error: apsw.Error) -> apsw.Error:
    """Return what the system's error number says more exactly than SQLite: full or read-only; else `error`.

    A flush is left out: how much of what was written before it is on the disk, nobody knows.
    """
    if not isinstance(error, apsw.IOError) or extended_code(error) == apsw.SQLITE_IOERR_FSYNC:
        return error
    number = db.system_errno
    if number in NO_SPACE:
        return apsw.FullError(f"FullError: {os.strerror(number)}")
    if number == errno.EROFS:
        return apsw.ReadOnlyError(f"ReadOnlyError: {os.strerror(number)}")
    return error


def answer_to(error: Exception) -> McpStateError:
    """Return what a caller is told of a failure before which, or in spite of which, nothing was stored."""
    if isinstance(error, apsw.FullError):
        return StorageFull(
            "The disk is full: nothing was stored. Reading and deleting still work. Free some space on the "
            "disk, or delete states and run `mcpstated trash empty`; then try again."
        )
    if isinstance(error, apsw.ReadOnlyError):
        return BackendError(
            "The disk is read-only: nothing was stored. Reading still works. "
            "Make it writable, then try again."
        )
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return BackendError(
            "Another program keeps the database locked: nothing was stored. Reading still works. "
            "Close that program, then try again."
        )
    return BackendError(
        "The storage failed and nothing was stored; the daemon's log has the reason. Try again."
    )


def answer_to_failed_commit() -> OutcomeUnknown:
    """Return what a caller is told when the disk failed in the very commit, and goes on failing."""
    return OutcomeUnknown(
        "The disk failed while this write was stored: it may be stored or not.",
        hint="Load the handle to see whether the change is there before you repeat it.",
    )
