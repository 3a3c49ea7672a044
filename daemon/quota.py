"""How many handles each user holds, counted once and then kept by adding and subtracting.

A count is as of one revision, and changes that the backend had counted already are not counted twice.
Mints on their way hold a place, so that a burst cannot pass the limit. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import trio

from mcpstated.protocol.errors import QuotaExceeded

if TYPE_CHECKING:
    from mcpstated.daemon.backends.interface import Backend
    from mcpstated.protocol.store import Space

Owner: TypeAlias = "tuple[Space, str]"

MAX_COUNTS = 10_000
"""Owners whose counts are kept; beyond it those that nobody waits for are counted again when needed."""


@dataclass(slots=True)
class _Count:
    held: int = 0
    as_of: int | None = None
    """The revision that `held` includes; None while it is being counted."""
    missed: list[tuple[int, int]] = field(default_factory=list)
    """Changes (revision, difference) that came in meanwhile."""
    reserved: int = 0
    freed: trio.Event = field(default_factory=trio.Event)
    """Set when a reservation ends."""


class Quota:
    """Admits mints."""

    def __init__(self, backend: Backend, *, limit: int, expire: Callable[[Owner], Awaitable[int]]) -> None:
        """Build it.

        Args:
            expire: Removes what has expired of one owner and returns how many handles that were.
        """
        self._backend = backend
        self._limit = limit
        self._expire = expire
        self._counts: dict[Owner, _Count] = {}
        self._counting: dict[Owner, trio.Lock] = {}

    async def admit(self, owner: Owner) -> None:
        """Return when one more handle may be minted; the caller must `reserve` it at once.

        Raises:
            QuotaExceeded: The owner durably holds as many as are allowed, none of them expired.
        """
        while True:
            count = await self._count(owner)
            if count.held + count.reserved < self._limit:
                return
            if count.held < self._limit:  # others are about to take the last places, or to fail
                await count.freed.wait()
            elif not await self._expire(owner) and self._held(owner) >= self._limit:
                raise QuotaExceeded(
                    f"You hold {self._limit} handles and that is the limit. Delete handles that are done, "
                    "or keep more in one of them, and try again.",
                    held=self._held(owner),
                    limit=self._limit,
                )

    def reserve(self, owner: Owner) -> None:
        """Hold a place for a mint on its way."""
        self._counts[owner].reserved += 1

    def release(self, owner: Owner) -> None:
        """Give the place back; a mint that was applied is counted by `changed`."""
        count = self._counts[owner]
        count.reserved -= 1
        count.freed.set()
        count.freed = trio.Event()

    def changed(self, owner: Owner, difference: int, revision: int) -> None:
        """Count a durable mint, delete or expiry."""
        count = self._counts.get(owner)
        if count is None:
            return
        if count.as_of is None:
            count.missed.append((revision, difference))
        elif revision > count.as_of:
            count.held += difference

    def _held(self, owner: Owner) -> int:
        return self._counts[owner].held

    async def _count(self, owner: Owner) -> _Count:
        count = self._counts.get(owner)
        if count is not None and count.as_of is not None:
            return count
        self._forget_some()
        async with self._counting.setdefault(owner, trio.Lock()):
            count = self._counts.setdefault(owner, _Count())
            try:
                if count.as_of is None:
                    held, as_of = await self._backend.count(*owner)
                    count.held = held + sum(
                        difference for revision, difference in count.missed if revision > as_of
                    )
                    count.as_of = as_of
                    count.missed.clear()
            finally:
                if count.as_of is None:  # it failed or was cancelled: the next one counts afresh
                    del self._counts[owner]
        self._counting.pop(owner, None)
        return count

    def _forget_some(self) -> None:
        if len(self._counts) < MAX_COUNTS:
            return
        for owner, count in tuple(self._counts.items()):
            if count.as_of is not None and not count.reserved:
                del self._counts[owner]
