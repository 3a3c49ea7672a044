"""Writing on a disk that is full, or nearly so.

    ordinary write   refused unless the reserve is set aside, so it never uses up what clearing up needs
    write that       tried; if the disk is full, again once the write-ahead log was folded back, and again
    takes away       once the reserve was given up

Folding the log back into the database needs room itself: for the pages by which the database grows. Near a
full disk it is therefore done early enough for the reserve to hold them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from mcpstated.daemon.backends.faults import refined
from mcpstated.daemon.backends.opening import BUSY_TIMEOUT_MS
from mcpstated.daemon.backends.reserve import Reserve
from mcpstated.daemon.logs import log_event
from mcpstated.protocol.errors import StorageFull

T = TypeVar("T")

log = logging.getLogger("mcpstated.engine")

_NEARLY_FULL = 16
"""With less free space than so many reserves, the log is kept short."""
_FOLD_WAIT_MS = 200
"""How long folding the log waits for readers."""


class Room:
    """What one store does about a full disk. Used in the writer connection's worker thread."""

    def __init__(self, path: Path, reserve: Reserve, *, wal_max_bytes: int) -> None:
        self._path = str(path)
        self._directory = str(path.parent)
        self._wal = f"{path}-wal"
        self._reserve = reserve
        self._wal_max_bytes = wal_max_bytes
        self._had_space = True
        """As of the last look; what changes is said once."""

    def write(self, db: apsw.Connection, work: Callable[[], T], *, takes_away: bool) -> T:
        """Run one write transaction.

        Args:
            work: Rolls itself back if it fails, so that it can be run again.
            takes_away: It removes more than it adds, or leads to that.

        Raises:
            FullError: There is no room, even so.
            StorageFull: The write-ahead log has reached its limit.
        """
        if not takes_away:
            self._require_room(db)
        try:
            result = work()
        except apsw.Error as error:
            if not _is_full(db, error):
                raise
            result = self._write_again(db, work, takes_away=takes_away)
        self._keep_log_short(db)
        return result

    def look(self) -> None:
        """Set the reserve aside, if that is possible by now."""
        had_space, self._had_space = self._had_space, self._reserve.look()
        if had_space and not self._had_space:
            log_event(log, "warning", "disk was too full to set space aside", path=self._path)
        elif self._had_space and not had_space:
            log_event(log, "info", "disk space was set aside again", path=self._path)

    def _write_again(self, db: apsw.Connection, work: Callable[[], T], *, takes_away: bool) -> T:
        self._fold_log(db)
        try:
            return work()
        except apsw.Error as error:
            if not (_is_full(db, error) and takes_away and self._reserve.give_up()):
                raise
        log_event(log, "warning", "reserve was given up to the full disk", path=self._path)
        self._fold_log(db)  # before anything else takes what that needs: then the log's own file is room
        return work()

    def _require_room(self, db: apsw.Connection) -> None:
        if _size_bytes(self._wal) > self._wal_max_bytes and not _cut_log(db):
            raise StorageFull(
                "Another program has been reading the database for so long that the write-ahead log has "
                "reached its limit: nothing was stored. Reading still works. Close that program, then try "
                "again."
            )
        if self._reserve.take() and self._can_fold_afterwards(db):
            return
        free: Any = db.pragma("freelist_count")
        page_size: Any = db.pragma("page_size")
        if free * page_size >= self._reserve.size_bytes:  # the database has the room inside
            return
        if not (_cut_log(db) and self._reserve.take() and self._can_fold_afterwards(db)):
            raise apsw.FullError("the space that is left is kept for taking things away")

    def _can_fold_afterwards(self, db: apsw.Connection) -> bool:
        """Tell whether a large write would leave the space that folding the log needs.

        It takes its size in the log and again in the database. Without that space the log could only grow,
        and taking things away would use up the reserve and come to an end.
        """
        try:
            left_bytes = free_bytes(self._directory)
        except OSError:  # a disk that cannot be asked is found out about by writing
            return True
        reserve_bytes = self._reserve.size_bytes
        if left_bytes > _NEARLY_FULL * reserve_bytes:
            return True
        return left_bytes - self._growth(db) >= 2 * reserve_bytes

    def _keep_log_short(self, db: apsw.Connection) -> None:
        """Fold the log early where space is short. Never fails: what was to be stored is stored."""
        try:
            self._fold_if_short_of_space(db)
        except (apsw.Error, OSError) as error:
            log_event(log, "warning", "disk space could not be looked at", error=type(error).__name__)

    def _fold_if_short_of_space(self, db: apsw.Connection) -> None:
        reserve_bytes = self._reserve.size_bytes
        left_bytes = free_bytes(self._directory)
        if left_bytes > _NEARLY_FULL * reserve_bytes:
            return
        if left_bytes <= reserve_bytes or self._growth(db) > reserve_bytes // 2:
            self._fold_log(db)

    def _fold_log(self, db: apsw.Connection) -> None:
        """Move the log into the database if there is room for it, and begin it anew.

        Without a reserve the log's file is not cut: it is room that nobody else can take.
        """
        if self._growth(db) > free_bytes(self._directory):
            return
        db.set_busy_timeout(_FOLD_WAIT_MS)
        try:
            if self._reserve.is_held:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            else:
                db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        except apsw.Error as error:
            log_event(log, "warning", "log could not be folded", error=type(error).__name__)
        finally:
            db.set_busy_timeout(BUSY_TIMEOUT_MS)

    def _growth(self, db: apsw.Connection) -> int:
        """Return by how many bytes the database grows once the log is folded into it."""
        pages: Any = db.pragma("page_count")
        page_size: Any = db.pragma("page_size")
        return int(pages * page_size) - _size_bytes(self._path)


def _cut_log(db: apsw.Connection) -> bool:
    """Move the log into the database and cut it; False if there is no room, or somebody reads from it."""
    db.set_busy_timeout(0)
    try:
        is_busy, _frames, _moved = next(iter(db.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
    except apsw.FullError:
        return False
    finally:
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
    return not is_busy


def _is_full(db: apsw.Connection, error: apsw.Error) -> bool:
    return isinstance(refined(db, error), apsw.FullError)


def free_bytes(directory: str) -> int:
    """Return how much space the disk has for this user."""
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def _size_bytes(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
