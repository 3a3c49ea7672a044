"""The committer: everything that is queued becomes one batch, one transaction, one flush to disk.

While a batch is being flushed the next one gathers; there is no timer. When a batch is durable the
heads move, then the callers are answered, then the feed hears of it. When it fails its tips are
dropped: every write in it, and every queued write that built on one of those tips, gets the same
error. The engine above evaluates and calls `submit`; the backend below does the transaction.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import trio

from mcpstated.daemon.backends.interface import Applied, Backend, Conflict, Outcome, Repeated
from mcpstated.daemon.failpoints import failpoint
from mcpstated.daemon.repeats import RepeatLog
from mcpstated.protocol.errors import BackendError, McpStateError, OutcomeUnknown, StorageFull

if TYPE_CHECKING:
    from mcpstated.daemon.cache import Cache, Entry
    from mcpstated.daemon.changes import State, Step
    from mcpstated.daemon.ledger import Ledger

MAX_BATCH_CHANGES = 512
MAX_BATCH_BYTES = 8 * 1024 * 1024
"""A batch stops growing here, so that one transaction stays well below the write-ahead log's limit."""


class Pending:
    """A write on its way. It is settled once, by the committer, whether or not anybody waits."""

    __slots__ = ("_callbacks", "_event", "entry", "error", "is_settled", "outcome", "state", "step")

    def __init__(self, entry: Entry, step: Step) -> None:
        self.entry = entry
        self.step = step
        self.is_settled = False
        self.outcome: Outcome | None = None
        """What the backend said; None if the batch failed."""
        self.error: McpStateError | None = None
        """Why the batch failed."""
        self.state: State | None = None
        """The durable state, with its revision, if the change was applied and the handle still is."""
        self._event = trio.Event()
        self._callbacks: list[Callable[[Pending], None]] = []

    async def wait(self) -> None:
        """Return when the write is settled. Cancelling the wait does not take the write back."""
        await self._event.wait()

    def when_settled(self, callback: Callable[[Pending], None]) -> None:
        """Call back once it is settled, before those who wait go on; at once if it is."""
        if self.is_settled:
            callback(self)
        else:
            self._callbacks.append(callback)

    def settle(self, outcome: Outcome | None, error: McpStateError | None = None) -> None:
        """Tell everybody. Only the committer calls this."""
        self.outcome = outcome
        self.error = error
        self.is_settled = True
        for callback in self._callbacks:
            callback(self)
        self._event.set()


class _Job:
    """Work for the committer's task, and somebody who waits for it."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._ended = trio.Event()
        self._error: McpStateError | None = None

    async def run(self) -> None:
        try:
            await self._work()
        except McpStateError as error:
            self._error = error
        finally:
            self._ended.set()

    def abandon(self) -> None:
        self._error = BackendError("The store is closing.")
        self._ended.set()

    async def wait(self) -> None:
        await self._ended.wait()
        if self._error is not None:
            raise self._error


class Committer:
    """One queue of writes and the one task that makes them durable."""

    def __init__(
        self,
        backend: Backend,
        cache: Cache,
        ledger: Ledger,
        *,
        on_applied: Callable[[Sequence[Pending]], None],
    ) -> None:
        """Build it; nothing runs before `run`.

        Args:
            on_applied: Hears of the changes that became durable, in order, after their callers.
        """
        self._backend = backend
        self._cache = cache
        self._ledger = ledger
        self._on_applied = on_applied
        self._queue: deque[Pending] = deque()
        self._in_flight: list[Pending] = []
        self._jobs: deque[_Job] = deque()
        self._work_arrived = trio.Event()
        self._batch_ended = trio.Event()
        self._is_closed = False
        self._log = RepeatLog(logging.getLogger("mcpstated.engine"))
        self.revision = 0
        """The newest revision that the heads have reached."""
        self.batches = 0
        """How many transactions there have been."""

    def submit(self, entry: Entry, step: Step) -> Pending:
        """Queue an evaluated write and make its outcome the entry's tip.

        Ordering: writes become durable in the order in which they are submitted.

        Raises:
            BackendError: The store is closing.
        """
        if self._is_closed:
            raise BackendError("The store is closing and takes no more writes. Try again in a moment.")
        pending = Pending(entry, step)
        entry.tip = step.state
        entry.last = pending
        self._cache.resized(entry)
        self._queue.append(pending)
        self._work_arrived.set()
        return pending

    async def run(self) -> None:
        """Commit what is queued, for ever. Must be shielded: cancelling it fails what is on its way."""
        try:
            while True:
                if not self._queue and not self._jobs:
                    self._work_arrived = trio.Event()
                    await self._work_arrived.wait()
                if self._jobs:
                    await self._jobs.popleft().run()
                if not self._queue:
                    continue
                self._in_flight = self._take()
                failpoint("commit.batch_taken")
                await self._commit(self._in_flight)
                self._in_flight = []
                self._end_batch()
        finally:
            self._is_closed = True
            interrupted, unsent = self._in_flight, list(self._queue)
            self._in_flight = []
            self._queue.clear()
            self._fail(
                interrupted,
                OutcomeUnknown(
                    "The store closed while this write was on its way to disk: it may be stored or not.",
                    hint="Load the handle to see whether the change is there before you repeat it.",
                ),
            )
            while self._jobs:
                self._jobs.popleft().abandon()
            self._fail(unsent, BackendError("The store closed before this write was stored. Try again."))
            self._end_batch()

    async def between_batches(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work that makes revisions of its own, in the committer's task and in line with the batches.

        Cancelling the caller does not interrupt it.

        Raises:
            McpStateError: Whatever the work raised, or BackendError if the store is closing.
        """
        if self._is_closed:
            raise BackendError("The store is closing.")
        job = _Job(work)
        self._jobs.append(job)
        self._work_arrived.set()
        await job.wait()

    def reached(self, revision: int) -> None:
        """Say that the heads are at a revision that was not made by a batch."""
        self.revision = max(self.revision, revision)

    async def drain(self) -> None:
        """Return when all that was queued before is settled."""
        for pending in [*self._in_flight, *self._queue]:
            await pending.wait()

    async def catch_up(self, revision: int) -> None:
        """Return when the heads have reached a revision that the backend has shown already."""
        while self.revision < revision and self._in_flight:
            await self._batch_ended.wait()

    def _take(self) -> list[Pending]:
        batch: list[Pending] = []
        size_bytes = 0
        while self._queue and len(batch) < MAX_BATCH_CHANGES and size_bytes < MAX_BATCH_BYTES:
            pending = self._queue.popleft()
            batch.append(pending)
            size_bytes += pending.step.change.stored_bytes
        return batch

    async def _commit(self, batch: list[Pending]) -> None:
        changes = [pending.step.change for pending in batch]
        settled = self._ledger.floors_of(
            change.token.origin for change in changes if change.token is not None
        )
        try:
            outcomes = await self._backend.append(changes, settled)
        except StorageFull as error:
            await self._commit_what_frees(batch, error)
        except McpStateError as error:
            self._fail(batch, error)
        except Exception as error:
            self._log.error("batch failed unexpectedly", error)
            if len(batch) > 1:  # one write may be at fault: the others must not pay for it
                for pending in batch:
                    if pending.entry.is_dropped:  # one before it was not applied, and it built on that
                        pending.settle(Conflict())
                    else:
                        await self._commit([pending])
                return
            self._fail(
                batch,
                BackendError("The storage failed and nothing was stored; the daemon's log has the reason."),
            )
        else:
            self._ledger.pruned(settled)
            failpoint("commit.batch_durable")
            self._finish(batch, outcomes)
        self.batches += 1

    async def _commit_what_frees(self, batch: list[Pending], error: StorageFull) -> None:
        """Refuse a batch that the disk has no space for, but commit what must be possible all the same."""
        freeing = [pending for pending in batch if pending.step.change.takes_away]
        if len(freeing) in (0, len(batch)):
            self._fail(batch, error)
            return
        self._fail([pending for pending in batch if not pending.step.change.takes_away], error)
        sound = []
        for pending in freeing:
            if pending.entry.is_dropped:  # it built on one that was refused
                pending.settle(Conflict())
            else:
                sound.append(pending)
        if sound:
            await self._commit(sound)

    def _finish(self, batch: list[Pending], outcomes: Sequence[Outcome]) -> None:
        applied: list[Pending] = []
        for pending, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Applied):
                self.revision = max(self.revision, outcome.revision)
                self._move_head(pending, outcome.revision)
                applied.append(pending)
        failpoint("commit.heads_moved")
        for pending, outcome in zip(batch, outcomes, strict=True):
            pending.settle(outcome)
            if isinstance(outcome, Conflict | Repeated):
                self._drop(pending.entry, None)
        failpoint("commit.batch_settled")
        self._on_applied(applied)

    def _move_head(self, pending: Pending, revision: int) -> None:
        entry, change, state = pending.entry, pending.step.change, pending.step.state
        if state is None:
            entry.head = None
            entry.last = None
            self._cache.drop(entry)
            return
        durable = state.at_revision(revision)
        pending.state = durable
        entry.head = durable
        entry.history_bytes += change.stored_bytes
        if entry.last is pending:
            entry.tip = durable
            entry.last = None

    def _fail(self, batch: Sequence[Pending], error: McpStateError) -> None:
        for pending in batch:
            if not pending.is_settled:
                pending.settle(None, error)
            self._drop(pending.entry, error)

    def _drop(self, entry: Entry, error: McpStateError | None) -> None:
        """Let go of an entry whose tip will never be, and of the queued writes that built on it.

        They get the error, or if there is none are told of a conflict, and their callers evaluate again.
        """
        if entry.is_dropped and entry.last is None:
            return
        self._cache.drop(entry)
        entry.last = None
        stranded = [pending for pending in self._queue if pending.entry is entry]
        if stranded:
            self._queue = deque(pending for pending in self._queue if pending.entry is not entry)
        for pending in stranded:
            pending.settle(None if error is not None else Conflict(), error)

    def _end_batch(self) -> None:
        ended, self._batch_ended = self._batch_ended, trio.Event()
        ended.set()
