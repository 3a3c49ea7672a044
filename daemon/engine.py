"""The engine: the one implementation of the store, over any backend.

It validates what callers send, serves reads from durable heads, and holds the parts together that do
the rest: `writes` (one write, from evaluation to receipt), `evaluation` (pure), `cache`, `loader`,
`committer`, `ledger`, `quota`, `sweeper`, and the backend. Above it: the MCP surface and the wire.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from mcpstated.daemon import changes, evaluation, listing
from mcpstated.daemon.backends.interface import COMES_AND_GOES, Applied, Backend, Key, Removed
from mcpstated.daemon.cache import Cache, Entry
from mcpstated.daemon.committer import Committer, Pending
from mcpstated.daemon.feed import Feed, FeedEvent
from mcpstated.daemon.ledger import Ledger
from mcpstated.daemon.loader import Loader
from mcpstated.daemon.logs import log_event
from mcpstated.daemon.quota import Quota
from mcpstated.daemon.sweeper import DEFAULT_INTERVAL_SECONDS, Sweeper
from mcpstated.daemon.writes import Attempt, Writer, not_found
from mcpstated.protocol import fields
from mcpstated.protocol.documents import check_document
from mcpstated.protocol.errors import (
    BackendError,
    HandleExists,
    HandleNotFound,
    HistoryCompacted,
    InvalidInput,
    McpStateError,
)
from mcpstated.protocol.store import (
    KEEP,
    Caller,
    HandleId,
    KeepType,
    Page,
    Receipt,
    Revision,
    Snapshot,
    StoreStatus,
    Trashed,
    Version,
)
from mcpstated.protocol.store_mark import store_mark

if TYPE_CHECKING:
    from mcpstated.daemon.changes import Step
    from mcpstated.daemon.clock import StoreClock
    from mcpstated.protocol.documents import Document
    from mcpstated.protocol.handle_record import HandleRecord
    from mcpstated.protocol.limits import Limits
    from mcpstated.protocol.patches import Operation

log = logging.getLogger("mcpstated.engine")

EMPTY_STEP = 20
"""Handles that are taken out of the trash in one transaction."""
FLUSH_SECONDS = 20.0
"""How long the queue may take to become durable when the engine is told to stop."""


class Engine:
    """Durable, versioned, expiring documents of many users. Owned by the event loop's thread.

    See `mcpstated.protocol.store.Store` for what each method does and raises.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        clock: StoreClock,
        limits: Limits,
        feed: Feed,
        sweep_seconds: float | None = DEFAULT_INTERVAL_SECONDS,
    ) -> None:
        """Build it; nothing is opened before `run`.

        Args:
            sweep_seconds: Seconds between two passes of the sweeper; None for only those asked for.
        """
        self._backend = backend
        self._clock = clock
        self._limits = limits
        self._feed = feed
        self._ledger = Ledger()
        self._cache = Cache(max_bytes=limits.cache_bytes)
        self._committer = Committer(backend, self._cache, self._ledger, on_applied=self._applied)
        self._loader = Loader(backend, self._cache)
        self._sweeper = Sweeper(
            backend,
            clock=clock,
            limits=limits,
            ledger=self._ledger,
            cache=self._cache,
            committer=self._committer,
            loader=self._loader,
            on_removed=self._removed,
            interval_seconds=sweep_seconds,
        )
        self._quota = Quota(backend, limit=limits.max_handles_per_user, expire=self._sweeper.expire_owner)
        self._writer = Writer(
            backend,
            clock=clock,
            cache=self._cache,
            ledger=self._ledger,
            loader=self._loader,
            committer=self._committer,
        )
        self._is_running = False
        self._store_id = ""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the store and serve it until cancelled; then flush, close and return.

        Reports started once the store is open and usable.

        Raises:
            StoreRefused: The store cannot be opened; nothing on disk has changed.
        """
        opened = await self._backend.open()
        self._clock.go_on(opened.newest_at, opened.noted_at, opened.noted_boot)
        self._committer.revision = opened.revision
        self._store_id = opened.store_id
        try:
            async with trio.open_nursery() as nursery:
                committing = trio.CancelScope(shield=True)
                nursery.start_soon(self._commit, committing)
                try:
                    async with trio.open_nursery() as workers:
                        self._loader.start(workers)
                        workers.start_soon(self._sweeper.run)
                        self._is_running = True
                        task_status.started()
                        await trio.sleep_forever()
                finally:
                    self._is_running = False
                    self._loader.stop()
                    with trio.move_on_after(FLUSH_SECONDS, shield=True) as flush:
                        await self.drain()
                        await self._note_time()
                    if flush.cancelled_caught:
                        log_event(log, "error", "flush did not end in time", seconds=FLUSH_SECONDS)
                    committing.cancel()
        finally:
            await self._backend.aclose()

    def durable_revision(self) -> int:
        """Return the newest revision that is durable and that reads see."""
        return self._committer.revision

    def mark(self) -> str:
        """Return the word by which clients recognise this store."""
        return store_mark(self._store_id, self._committer.revision)

    async def drain(self) -> None:
        """Return when everything that was queued before is durable, or has failed."""
        await self._committer.drain()

    def note_settled(self, origin: bytes, floor: int) -> None:
        """Remember that calls of that shim with a number below `floor` will never be asked for again."""
        self._ledger.note_settled(origin, floor)

    async def sweep(self) -> None:
        """Do one pass of the sweeper now."""
        await self._sweeper.sweep()

    async def status(self) -> StoreStatus:
        """Return size, counts and versions."""
        self._require_running()
        status = await self._backend.status(self._clock.now())
        return StoreStatus(
            path=status.path,
            size_bytes=status.size_bytes,
            revision=Revision(status.revision),
            handles=status.handles,
            schema_version=status.schema_version,
            sqlite_version=status.sqlite_version,
            cache_bytes=self._cache.size_bytes,
            cached_documents=len(self._cache),
        )

    async def mint(
        self,
        caller: Caller,
        *,
        kind: str,
        document: Document,
        ttl_days: float | None = None,
        title: str | None = None,
    ) -> Receipt:
        """Make a new handle with version 1."""
        self._check_caller(caller)
        kind = fields.check_kind(kind)
        size_bytes = check_document(document, limits=self._limits)
        ttl_days = fields.check_ttl_days(ttl_days, self._limits)
        title = fields.check_title(title, self._limits)
        owner = caller.space, caller.user

        async def attempt() -> Attempt:
            await self._quota.admit(owner)
            key = Key(caller.space, caller.user, evaluation.new_name(kind))
            evaluated = evaluation.mint(
                caller,
                key,
                kind=kind,
                document=document,
                size_bytes=size_bytes,
                ttl_days=ttl_days,
                title=title,
                now=self._clock.now(),
            )
            entry = Entry(key, None, oldest_version=1, history_bytes=0)
            return self._submit_new(entry, evaluated.step), ()

        return await self._writer.write(caller, attempt)

    async def save(
        self,
        caller: Caller,
        handle: str,
        *,
        document: Document,
        expect_version: int,
        ttl_days: float | None | KeepType = KEEP,
        title: str | None | KeepType = KEEP,
    ) -> Receipt:
        """Replace the document if its version still is `expect_version`."""
        key = self._key(caller, handle)
        size_bytes = check_document(document, limits=self._limits)
        expect_version = fields.check_version(expect_version, "expect_version")
        if ttl_days is not KEEP:
            ttl_days = fields.check_ttl_days(ttl_days, self._limits)
        if title is not KEEP:
            title = fields.check_title(title, self._limits)
        return await self._writer.change(
            caller,
            key,
            lambda state, now: evaluation.save(
                caller,
                key,
                state,
                document=document,
                size_bytes=size_bytes,
                expect_version=expect_version,
                ttl_days=ttl_days,
                title=title,
                now=now,
            ),
        )

    async def patch(self, caller: Caller, handle: str, operations: Sequence[Operation]) -> Receipt:
        """Apply all operations or none to the newest document; never refused for contention."""
        key = self._key(caller, handle)
        return await self._writer.change(
            caller,
            key,
            lambda state, now: evaluation.patch(caller, key, state, operations, limits=self._limits, now=now),
        )

    async def touch(self, caller: Caller, handle: str, *, ttl_days: float | None) -> Receipt:
        """Let the handle expire that many days from now, or never if None."""
        key = self._key(caller, handle)
        ttl_days = fields.check_ttl_days(ttl_days, self._limits)
        return await self._writer.change(
            caller, key, lambda state, now: evaluation.touch(caller, key, state, ttl_days=ttl_days, now=now)
        )

    async def delete(self, caller: Caller, handle: str) -> Receipt:
        """Delete the handle; every later call answers HandleNotFound. Works on an expired handle too."""
        key = self._key(caller, handle)
        return await self._writer.change(
            caller,
            key,
            lambda state, now: evaluation.delete(
                caller, key, state, trash_days=self._limits.trash_days, now=now
            ),
        )

    async def adopt(self, caller: Caller, record: HandleRecord) -> Receipt:
        """Take a handle over from another store: under its name, with its version, times and history."""
        key = self._key(caller, record.handle)
        await self._sweeper.purge()  # the name of a handle that is gone for good is free

        async def attempt() -> Attempt:
            stored = await self._backend.load(key, with_trash=True)
            await self._quota.admit((caller.space, caller.user))
            if stored is not None or self._cache.peek(key) is not None:
                raise HandleExists(
                    f"There is a handle {key.handle} already, perhaps in the trash. Nothing was done.",
                    handle=key.handle,
                )
            evaluated = evaluation.adopt(caller, key, record, now=self._clock.now())
            oldest = record.checkpoints[0].version if record.changes else record.version
            entry = Entry(key, None, oldest_version=oldest, history_bytes=0)
            return self._submit_new(entry, evaluated.step), ()

        return await self._writer.write(caller, attempt)

    async def trash(self, caller: Caller) -> tuple[Trashed, ...]:
        """Return the caller's deleted handles that can be brought back, the last deleted first."""
        self._check_caller(caller)
        return tuple(
            await self._backend.trash(
                caller.space, caller.user, now=self._clock.now(), limit=self._limits.trash_handles
            )
        )

    async def undelete(self, caller: Caller, handle: str) -> Receipt:
        """Bring a deleted handle back as its next version; its time to live begins anew."""
        key = self._key(caller, handle)

        async def attempt() -> Attempt:
            stored = await self._backend.load(key, with_trash=True)
            now = self._clock.now()
            if stored is None or stored.head.trash_until is None or stored.head.trash_until <= now:
                raise _not_in_trash(key)
            state = await self._loader.rebuild(changes.rebuild, key, stored)
            await self._quota.admit((caller.space, caller.user))
            if (other := self._cache.peek(key)) is not None:  # somebody brings it back right now
                if other.last is not None:
                    await other.last.wait()
                return None
            evaluated = evaluation.undelete(caller, key, state, now=now)
            head = stored.head
            entry = Entry(key, None, oldest_version=head.oldest_version, history_bytes=head.history_bytes)
            return self._submit_new(entry, evaluated.step), ()

        return await self._writer.write(caller, attempt)

    async def empty_trash(self, caller: Caller, handle: str | None = None) -> int:
        """Remove one deleted handle for good, or all; return how many that were."""
        self._check_caller(caller)
        key = None if handle is None else self._key(caller, handle)
        handle_id = None if key is None else key.handle
        removed, is_more = 0, True
        while is_more:  # in small steps, for there may be next to no space on the disk
            step = await self._backend.empty_trash(caller.space, caller.user, handle_id, limit=EMPTY_STEP)
            removed += step
            is_more = step >= EMPTY_STEP
            await self._sweeper.purge()
        if key is not None and not removed:
            raise _not_in_trash(key)
        return removed

    async def load(self, caller: Caller, handle: str, *, version: int | None = None) -> Snapshot:
        """Return the newest durable document, or an older one."""
        key = self._key(caller, handle)
        if version is not None:
            version = fields.check_version(version)
        await trio.lowlevel.checkpoint()
        entry = await self._writer.entry(key)
        head = entry.head
        if head is None:
            raise not_found(key)
        evaluation.require_live(head, self._clock.now())
        if version is None or version == head.info.version:
            return Snapshot(head.info, head.document)
        if version > head.info.version or version < 1:
            raise InvalidInput(
                f"{key.handle} has no version {version}; its newest is {head.info.version}.", field="version"
            )
        return await self._load_version(key, version)

    async def list(
        self,
        caller: Caller,
        *,
        kind: str | None = None,
        query: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Return live handles of the caller's user and space, newest change first."""
        self._check_caller(caller)
        if kind is not None:
            kind = fields.check_kind(kind)
        limit = fields.check_limit(limit, self._limits)
        words = listing.words_of(query)
        filters = caller.space, caller.user, kind, words
        before = listing.read_cursor(cursor, *filters)
        page = await self._backend.list(
            caller.space,
            caller.user,
            kind=kind,
            words=words,
            before=before,
            limit=limit + 1,
            now=self._clock.now(),
        )
        shown = page.handles[:limit]
        next_cursor = None
        if len(page.handles) > limit:
            next_cursor = listing.write_cursor(shown[-1].revision, *filters)
        if shown:  # a load right after this list must not return less than the list has shown
            await self._committer.catch_up(shown[0].revision)
        return Page(shown, page.total, next_cursor)

    def _submit_new(self, entry: Entry, step: Step) -> Pending:
        """Queue the change that makes a handle, and hold a place for it; one was admitted just now."""
        owner = entry.key.space, entry.key.user
        pending = self._committer.submit(entry, step)
        self._cache.add(entry)
        self._quota.reserve(owner)
        pending.when_settled(lambda _: self._quota.release(owner))
        return pending

    async def _load_version(self, key: Key, version: int) -> Snapshot:
        stored = await self._backend.load(key, version=version)
        if stored is None:
            raise not_found(key)
        if stored.checkpoint is None:
            oldest = stored.head.oldest_version
            raise HistoryCompacted(
                f"Version {version} of {key.handle} has been folded away; "
                f"the oldest that is left is {oldest}.",
                requested=version,
                oldest=oldest,
            )
        state = await self._loader.rebuild(changes.rebuild_version, key, stored)
        return Snapshot(state.info, state.document)

    async def _note_time(self) -> None:
        try:
            await self._backend.note_time(*self._clock.note())
        except McpStateError as error:
            log_event(log, "warning", "time could not be noted", error=error.code)

    async def _commit(self, scope: trio.CancelScope) -> None:
        with scope:
            await self._committer.run()

    def _applied(self, applied: Sequence[Pending]) -> None:
        """Count, publish and note what became durable."""
        events = []
        for pending in applied:
            change, entry = pending.step.change, pending.entry
            outcome = pending.outcome
            revision = outcome.revision if isinstance(outcome, Applied) else 0
            owner = change.key.space, change.key.user
            log_event(
                log,
                "debug" if change.action == "patch" else "info",  # patches would drown everything else
                "change stored",
                action=change.action,
                handle=change.key.handle,
                version=change.info.version,
                user=change.key.user,
                writer=change.info.last_writer,
            )
            if (difference := COMES_AND_GOES.get(change.action)) is not None:
                self._quota.changed(owner, difference, revision)
            self._sweeper.note_history(
                change.key,
                versions=change.info.version - entry.oldest_version,
                size_bytes=entry.history_bytes,
            )
            events.append(
                FeedEvent(
                    Revision(revision),
                    *owner,
                    change.key.handle,
                    change.info.kind,
                    change.info.version,
                    change.action,
                    change.info.last_writer,
                    change.info.updated_at,
                )
            )
        self._feed.publish(events)

    def _removed(self, removed: Sequence[Removed]) -> None:
        """Let go of handles that expired, count them and publish it."""
        for gone in removed:
            log_event(log, "info", "handle expired", handle=gone.key.handle, user=gone.key.user)
            entry = self._cache.peek(gone.key)
            if entry is not None and entry.last is None:  # else its next batch meets a conflict
                self._cache.drop(entry)
            self._quota.changed((gone.key.space, gone.key.user), -1, gone.revision)
        self._feed.publish(
            [
                FeedEvent(
                    Revision(gone.revision),
                    gone.key.space,
                    gone.key.user,
                    gone.key.handle,
                    gone.kind,
                    Version(gone.version),
                    "expire",
                    "",
                    gone.at,
                )
                for gone in removed
            ]
        )

    def _key(self, caller: Caller, handle: str) -> Key:
        self._check_caller(caller)
        return Key(caller.space, caller.user, HandleId(fields.check_handle(handle)))

    def _check_caller(self, caller: Caller) -> None:
        self._require_running()
        fields.check_user(caller.user, self._limits)
        fields.check_writer(caller.writer, self._limits)

    def _require_running(self) -> None:
        if not self._is_running:
            raise BackendError("The store is closed or closing. Try again in a moment.")


def _not_in_trash(key: Key) -> HandleNotFound:
    return HandleNotFound(f"There is no handle {key.handle} in the trash.", handle=key.handle)
