"""The SQLite backend: apsw under trio, one connection that writes and one that only reads.

Each connection has a worker thread of its own, and whole functions run there: one hop per call. A read
never waits for a flush to disk. Cancelling a read interrupts it; a write is interrupted only where the
caller does not shield it, and then it is rolled back. apsw would also hand the caller's deadline to the
worker as an error of its own; that is switched off, because trio's cancellation says it already.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import apsw
import apsw.aio
import trio

from mcpstated.daemon.backends import compaction, opening, reading, sweeping, writing
from mcpstated.daemon.backends.faults import CommitFailed, answer_to, answer_to_failed_commit, refined
from mcpstated.daemon.backends.interface import (
    BackendStatus,
    FoldPlan,
    Key,
    KnownRequest,
    NewChange,
    Opened,
    Outcome,
    Removed,
    Repeated,
    StoredChange,
    StoredCheckpoint,
    StoredHandle,
    StoredPage,
    StoreRefused,
)
from mcpstated.daemon.backends.place import Place
from mcpstated.daemon.backends.reserve import Reserve
from mcpstated.daemon.backends.room import Room
from mcpstated.daemon.failpoints import failpoint
from mcpstated.daemon.repeats import RepeatLog
from mcpstated.protocol.errors import BackendError, McpStateError, OutcomeUnknown, StorageFull

if TYPE_CHECKING:
    from mcpstated.protocol.limits import Limits
    from mcpstated.protocol.store import CallToken, HandleId, RequestKey, Space, Trashed

T = TypeVar("T")

FEW_ROWS = 20
"""How many rows one transaction removes where the disk has no room for more."""
OPEN_SECONDS = 10.0
"""How long the system may take to open a file."""
CLOSE_SECONDS = 10.0
"""How long closing may take; the last checkpoint of the write-ahead log is part of it."""


class SQLiteBackend:
    """A store in one SQLite file. See `Backend` for what each method promises."""

    def __init__(
        self, path: Path | str, *, limits: Limits, vfs: str | None = None, creates_store: bool = True
    ) -> None:
        """Name the file; nothing is touched before `open`.

        Args:
            vfs: The SQLite VFS to go through; None for the system's.
            creates_store: False to refuse to open a store that is not there.
        """
        self._creates_store = creates_store
        self._path = Path(path)
        self._limits = limits
        self._vfs = vfs
        self._writer: apsw.AsyncConnection | None = None
        self._reader: apsw.AsyncConnection | None = None
        self._errors = RepeatLog(logging.getLogger("mcpstated.engine"))
        self._place = Place(self._path)
        self._files = Path(os.path.realpath(self._path)) if self._path.is_symlink() else self._path
        """What the other files stand beside, if the path is a link."""
        self._reserve = Reserve(self._files, limits.reserve_bytes)
        self._room = Room(self._files, self._reserve, wal_max_bytes=limits.wal_max_bytes)

    async def open(self) -> Opened:
        """Open or create the file and check it. Raises: StoreRefused."""
        await trio.to_thread.run_sync(opening.prepare, self._path, self._vfs, self._creates_store)
        try:
            return await self._open()
        except StoreRefused as refused:
            if not opening.is_for_space(refused) or not self._reserve.give_up():
                raise
        return await self._open()

    async def _open(self) -> Opened:
        try:
            self._writer = await self._connect(apsw.SQLITE_OPEN_READWRITE)
            await _run(self._writer, opening.configure_writer, self._path, self._limits.wal_bytes)
            self._place.remember()
            self._reader = await self._connect(apsw.SQLITE_OPEN_READONLY)
            await _run(self._reader, opening.configure_reader)
            opened = await _run(self._reader, reading.opened)
            await _run(self._writer, self._look_for_room)
        except (apsw.Error, OSError, trio.TooSlowError) as error:
            await self.aclose()
            raise opening.refusal(self._path, error) from error
        except BaseException:
            await self.aclose()
            raise
        return opened

    async def aclose(self) -> None:
        """Close both connections, the writer last: it folds the write-ahead log into the file."""
        reader, writer = self._reader, self._writer
        self._reader = self._writer = None
        failpoint("close.before_close")
        with trio.move_on_after(CLOSE_SECONDS, shield=True), _without_deadline():
            for connection in (reader, writer):
                if connection is not None:
                    with contextlib.suppress(apsw.Error):
                        await connection.aclose()
        failpoint("close.after_close")

    async def append(self, changes: Sequence[NewChange], settled: Mapping[bytes, int]) -> Sequence[Outcome]:
        """Append a batch in one transaction; durable in the file that the path names when this returns."""
        return await self._reported(self._writer, "append", self._append_in_place, changes, settled)

    async def load(
        self, key: Key, *, version: int | None = None, with_trash: bool = False
    ) -> StoredHandle | None:
        """Return what a version is rebuilt from."""
        return await self._read("load", reading.load, key, version, with_trash)

    async def changes(self, key: Key, *, after: int, upto: int, limit: int) -> Sequence[StoredChange]:
        """Return kept changes, oldest first."""
        return await self._read("changes", reading.changes, key, after, upto, limit)

    async def list(
        self,
        space: Space,
        user: str,
        *,
        kind: str | None,
        words: Sequence[str],
        before: int | None,
        limit: int,
        now: float,
    ) -> StoredPage:
        """Return one page of a user's handles."""
        return await self._read("list", reading.list_page, space, user, kind, words, before, limit, now)

    async def count(self, space: Space, user: str) -> tuple[int, int]:
        """Return how many handles a user holds, and as of which revision."""
        return await self._read("count", reading.count, space, user)

    async def recall(self, space: Space, user: str, token: CallToken) -> Repeated | None:
        """Return what the ledger says of a call."""
        return await self._read("recall", reading.recall, space, user, token)

    async def recall_request(self, space: Space, user: str, key: str, *, after: float) -> KnownRequest | None:
        """Return what was answered under a request key."""
        return await self._read("recall", reading.recall_request, space, user, key, after)

    async def note_request(self, key: Key, request: RequestKey, receipt: str, *, now: float) -> None:
        """Keep the answer to a call without effect."""
        await self._write("note_request", writing.note_request, key, request, receipt, now, takes_away=False)

    async def trash(self, space: Space, user: str, *, now: float, limit: int) -> Sequence[Trashed]:
        """Return deleted handles that can be brought back."""
        return await self._read("trash", reading.trash, space, user, now, limit)

    async def empty_trash(self, space: Space, user: str, handle: HandleId | None, *, limit: int) -> int:
        """Let deleted handles be purged."""
        return await self._write("empty_trash", sweeping.empty_trash, space, user, handle, limit)

    async def trim_trash(self, *, keep_handles: int, keep_bytes: int) -> int:
        """Let the oldest of every trash that is too large be purged."""
        return await self._write("trim_trash", sweeping.trim_trash, keep_handles, keep_bytes)

    async def expire(
        self, now: float, *, limit: int, owner: tuple[Space, str] | None = None
    ) -> Sequence[Removed]:
        """Delete handles whose time has passed."""
        return await self._write("expire", sweeping.expire, now, limit, owner)

    async def purge(self, *, now: float, limit: int) -> int:
        """Remove rows of deleted handles; only a few in one transaction if the disk has no room for many."""
        try:
            return await self._write("purge", sweeping.purge, now, limit)
        except StorageFull:
            return await self._write("purge", sweeping.purge, now, min(limit, FEW_ROWS))

    async def forget_settled(self, settled: Mapping[bytes, int]) -> None:
        """Remove ledger rows that their shims have settled."""
        await self._write("forget", writing.forget_settled, settled)

    async def forget_old(self, *, before: float, limit: int) -> int:
        """Remove ledger rows that are too old to be asked for."""
        return await self._write("forget", sweeping.forget_old, before, limit)

    async def aged(self, *, before: float, limit: int) -> Sequence[Key]:
        """Return handles with changes from before a time."""
        return await self._read("aged", sweeping.aged, before, limit)

    async def plan_fold(
        self, key: Key, *, keep_changes: int, keep_bytes: int, before: float
    ) -> FoldPlan | None:
        """Return where a handle's history should begin."""
        return await self._read("plan_fold", sweeping.plan_fold, key, keep_changes, keep_bytes, before)

    async def fold(
        self, key: Key, plan: FoldPlan, checkpoint: StoredCheckpoint | None, *, limit: int
    ) -> int | None:
        """Remove history that is older than the plan's version."""
        return await self._write("fold", sweeping.fold, key, plan, checkpoint, limit)

    async def compact(self) -> bool:
        """Give some of the pages that are free inside the file back to the disk."""
        if not await self._call(self._writer, "compact", compaction.is_due):
            return False
        await self._write("compact", compaction.compact, takes_away=False)
        return True

    async def note_time(self, now: float, boot: str) -> None:
        """Keep the clock's time for the next opening."""
        await self._write("note_time", writing.note_time, now, boot, takes_away=False)

    async def tidy(self) -> None:
        """Bring the write-ahead log back to its limit, and set disk space aside again."""
        await self._call(self._writer, "tidy", sweeping.tidy, self._files, self._limits.wal_bytes)
        await self._call(self._writer, "tidy", self._look_for_room)

    async def status(self, now: float) -> BackendStatus:
        """Return size, counts and versions."""
        return await self._read("status", reading.status, self._files, now)

    def _append_in_place(
        self, db: apsw.Connection, changes: Sequence[NewChange], settled: Mapping[bytes, int]
    ) -> Sequence[Outcome]:
        """Append, and check on both sides of the commit that nobody removed or replaced the file."""
        if changed := self._place.what_changed():
            raise BackendError(f"The file {changed} was removed or replaced: nothing can be stored in it.")
        takes_away = all(change.takes_away for change in changes)
        outcomes = self._in_room(db, lambda: writing.append(db, changes, settled), takes_away)
        if changed := self._place.what_changed():
            raise OutcomeUnknown(
                f"The file {changed} was removed or replaced while this write was stored: "
                "it may be stored or not.",
                hint="Load the handle to see whether the change is there before you repeat it.",
            )
        return outcomes

    def _look_for_room(self, _db: apsw.Connection) -> None:
        self._room.look()

    def _in_room(self, db: apsw.Connection, work: Callable[[], T], takes_away: bool) -> T:
        """Run one write transaction as well as the disk allows."""
        try:
            return self._room.write(db, work, takes_away=takes_away)
        except CommitFailed as failed:
            if writing.overwrite_failed(db):
                raise failed.fault from failed  # now it is known: nothing was stored
            raise
        except apsw.Error as error:
            raise refined(db, error) from error

    async def _connect(self, flags: int) -> apsw.AsyncConnection:
        token = apsw.async_controller.set(cast("apsw.AsyncConnectionController", apsw.aio.Trio))
        try:  # shielded: a connection whose opener is gone would keep its thread, and the process, for ever
            with _without_deadline(), trio.fail_after(OPEN_SECONDS, shield=True):
                return await apsw.Connection.as_async(str(self._path), flags=flags, vfs=self._vfs)
        finally:
            apsw.async_controller.reset(token)

    async def _write(
        self, what: str, work: Callable[..., T], *arguments: object, takes_away: bool = True
    ) -> T:
        def write(db: apsw.Connection) -> T:
            return self._in_room(db, lambda: work(db, *arguments), takes_away)

        return await self._call(self._writer, what, write)

    async def _read(self, what: str, work: Callable[..., T], *arguments: object) -> T:
        return await self._call(self._reader, what, work, *arguments)

    async def _call(
        self, connection: apsw.AsyncConnection | None, what: str, work: Callable[..., T], *arguments: object
    ) -> T:
        """Run `work`; an error of any kind, as from a damaged row, is a failure of the storage."""
        try:
            return await self._reported(connection, what, work, *arguments)
        except McpStateError:
            raise
        except Exception as error:
            # its text may hold parts of a state
            self._errors.error("storage failed unexpectedly", error, has_text=False, operation=what)
            raise answer_to(error) from error

    async def _reported(
        self, connection: apsw.AsyncConnection | None, what: str, work: Callable[..., T], *arguments: object
    ) -> T:
        """Run `work`; errors of the database and of the disk come out as ours."""
        if connection is None:
            raise BackendError("The store is closed.")
        try:
            return await _run(connection, work, *arguments)
        except CommitFailed as error:
            self._errors.error("commit failed", error, operation=what)
            raise answer_to_failed_commit() from error
        except (apsw.Error, OSError) as error:
            self._errors.error("storage failed", error, operation=what)
            raise answer_to(error) from error


async def _run(connection: apsw.AsyncConnection, work: Callable[..., T], *arguments: object) -> T:
    """Run `work` in the connection's worker thread, where the connection is an ordinary one."""
    with _without_deadline():
        return cast("T", await connection.async_run(work, connection, *arguments))


@contextlib.contextmanager
def _without_deadline() -> Any:
    token = apsw.aio.deadline.set(math.inf)
    try:
        yield
    finally:
        apsw.aio.deadline.reset(token)


__all__ = ["CLOSE_SECONDS", "SQLiteBackend", "StoreRefused"]
