"""The sweeper: takes away, in small steps, what nobody can reach any more.

A pass removes handles that expired (and says so in the feed), deleted handles whose time in the trash is
over or that do not fit into it, ledger rows that are settled or a day old, request keys of that age, and
history beyond its limits; then it gives free space back to the disk and sees to the write-ahead log. Each
step is a short transaction of its own, and writes go on between two of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from mcpstated.daemon import changes
from mcpstated.daemon.clock import SECONDS_PER_DAY
from mcpstated.daemon.ledger import KEPT_SECONDS
from mcpstated.daemon.repeats import RepeatLog
from mcpstated.protocol.errors import McpStateError

if TYPE_CHECKING:
    from mcpstated.daemon.backends.interface import Backend, Key, Removed
    from mcpstated.daemon.cache import Cache
    from mcpstated.daemon.clock import StoreClock
    from mcpstated.daemon.committer import Committer
    from mcpstated.daemon.ledger import Ledger
    from mcpstated.daemon.loader import Loader
    from mcpstated.daemon.quota import Owner
    from mcpstated.protocol.limits import Limits

DEFAULT_INTERVAL_SECONDS = 60.0
FIRST_PASS_SECONDS = 5.0
"""The first pass comes soon, for a daemon may be short-lived, but after the first callers were served."""
STEP_ROWS = 500
"""Rows that one transaction removes at most."""
COMPACT_STEPS = 256
"""How often one pass gives space back at most, so that a store that was emptied does not hold up the rest."""
FORGET_INTERVAL_SECONDS = 3600.0
SLACK = 0.25
"""The part by which a history may pass its limit before it is folded: each fold may write a document."""

log = logging.getLogger("mcpstated.engine")


class Sweeper:
    """Removes what is over. One task runs it."""

    def __init__(
        self,
        backend: Backend,
        *,
        clock: StoreClock,
        limits: Limits,
        ledger: Ledger,
        cache: Cache,
        committer: Committer,
        loader: Loader,
        on_removed: Callable[[Sequence[Removed]], None],
        interval_seconds: float | None,
    ) -> None:
        """Build it; nothing is removed before `run` or `sweep`.

        Args:
            interval_seconds: Seconds between two passes; None for only those that `sweep` asks for.
            on_removed: Hears of handles that expired, once that is durable, in the order of revisions.
        """
        self._backend = backend
        self._clock = clock
        self._limits = limits
        self._ledger = ledger
        self._cache = cache
        self._committer = committer
        self._loader = loader
        self._on_removed = on_removed
        self._interval_seconds = interval_seconds
        self._long_histories: dict[Key, None] = {}
        self._next_forgetting = 0.0
        self._errors = RepeatLog(log)
        self._pass = trio.Lock()

    async def run(self) -> None:
        """Sweep now and then, for ever."""
        if self._interval_seconds is None:
            return
        await trio.sleep(min(FIRST_PASS_SECONDS, self._interval_seconds))
        while True:
            await self.sweep()
            await trio.sleep(self._interval_seconds)

    async def sweep(self) -> None:
        """Do one pass. A step that fails is logged, the others go on and the next pass tries it again."""
        async with self._pass:
            for step in (
                self._expire_all,
                self._trim_trash,
                self.purge,
                self._forget,
                self._fold_histories,
                self._compact,
                self._note_time,
                self._backend.tidy,
            ):
                try:
                    await step()
                except Exception as error:
                    self._failed("sweep failed", error)

    async def expire_owner(self, owner: Owner) -> int:
        """Remove what has expired of one user; return how many handles that were."""
        return await self._expire(owner)

    def note_history(self, key: Key, *, versions: int, size_bytes: int) -> None:
        """Remember a handle whose history has grown beyond its limits."""
        limits = self._limits
        if versions > limits.history_changes * (1 + SLACK) or size_bytes > limits.history_bytes * (1 + SLACK):
            self._long_histories[key] = None

    async def _expire_all(self) -> None:
        await self._expire(None)

    async def purge(self) -> None:
        """Remove what is left of handles that are gone for good."""
        while await self._backend.purge(now=self._clock.now(), limit=STEP_ROWS):
            pass

    async def _trim_trash(self) -> None:
        limits = self._limits
        await self._backend.trim_trash(keep_handles=limits.trash_handles, keep_bytes=limits.trash_bytes)

    async def _compact(self) -> None:
        for _ in range(COMPACT_STEPS):
            if not await self._backend.compact():
                return

    async def _note_time(self) -> None:
        await self._backend.note_time(*self._clock.note())

    async def _expire(self, owner: Owner | None) -> int:
        expired, is_more = 0, True

        async def step() -> None:
            nonlocal expired, is_more
            removed = await self._backend.expire(self._clock.now(), limit=STEP_ROWS, owner=owner)
            is_more = len(removed) >= STEP_ROWS
            if removed:
                expired += len(removed)
                self._committer.reached(removed[-1].revision)
                self._on_removed(removed)

        while is_more:
            await self._committer.between_batches(step)
        return expired

    async def _forget(self) -> None:
        settled = self._ledger.floors()
        if settled:
            await self._backend.forget_settled(settled)
            self._ledger.pruned(settled)
        now = self._clock.now()
        if now < self._next_forgetting:  # it reads the whole ledger, so not in every pass
            return
        self._next_forgetting = now + FORGET_INTERVAL_SECONDS
        while await self._backend.forget_old(before=now - KEPT_SECONDS, limit=STEP_ROWS) >= STEP_ROWS:
            pass

    async def _fold_histories(self) -> None:
        limits = self._limits
        long_ago = self._clock.now() - limits.history_days * (1 + SLACK) * SECONDS_PER_DAY
        tried: set[Key] = set()  # one that cannot be folded stays among the aged: once in a pass is enough
        while untried := set(await self._backend.aged(before=long_ago, limit=STEP_ROWS)) - tried:
            tried |= untried
            for key in untried:
                await self._fold_if_sound(key)
        for key in tuple(self._long_histories):
            self._long_histories.pop(key, None)
            await self._fold_if_sound(key)

    async def _fold_if_sound(self, key: Key) -> None:
        try:
            await self._fold(key)
        except Exception as error:
            self._failed("history could not be folded", error, handle=key.handle)

    def _failed(self, what: str, error: Exception, **fields: object) -> None:
        # the text of an error that nobody foresaw may hold parts of a state
        self._errors.error(what, error, has_text=isinstance(error, McpStateError), **fields)

    async def _fold(self, key: Key) -> None:
        limits = self._limits
        plan = await self._backend.plan_fold(
            key,
            keep_changes=limits.history_changes,
            keep_bytes=limits.history_bytes,
            before=self._clock.now() - limits.history_days * SECONDS_PER_DAY,
        )
        if plan is None:
            return
        checkpoint = None
        if not plan.is_checkpointed:
            stored = await self._backend.load(key, version=plan.version, with_trash=True)
            if stored is None or stored.checkpoint is None:
                return
            state = await self._loader.rebuild(changes.rebuild_version, key, stored)
            checkpoint = changes.checkpoint_from(state)
        kept_bytes = None
        while kept_bytes is None:
            kept_bytes = await self._backend.fold(key, plan, checkpoint, limit=STEP_ROWS)
            checkpoint = None
        entry = self._cache.peek(key)
        if entry is not None:
            entry.oldest_version = max(entry.oldest_version, plan.version)
            entry.history_bytes = kept_bytes
