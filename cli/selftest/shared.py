"""The handles that the clients share, each with its history, from its mint to its check.

active      everybody works on it
lingering   deleted: now and then somebody still tries
retired     nobody takes it up any more; it waits for its last calls and for the auditor
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import trio

from mcpstated.cli.selftest.history import Call

ACTIVE = 3
"""Few, so that the clients meet."""
LINGERING = 2
_LINGERING_CHANCE = 0.02
_VERSIONS = (80, 240)
"""How old a handle gets: documents stay small, and the history is all there."""


class SharedHandle:
    """One handle and every call on it. Owned by the event loop."""

    def __init__(self, mint: Call, last_version: int) -> None:
        self.name = mint.handle
        self.calls = [mint]
        self.last_version = last_version
        """From here on it is to end."""
        self.newest = 1
        """The highest version that any client saw."""
        self.is_ending = False
        self._users = 0
        self._idle = trio.Event()

    def add(self, call: Call) -> None:
        """Put a call into the history."""
        self.calls.append(call)
        if call.version is not None:
            self.newest = max(self.newest, call.version)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the handle from being judged meanwhile."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._idle.set()
                self._idle = trio.Event()

    async def wait_idle(self) -> None:
        """Wait until nobody uses it."""
        while self._users:
            await self._idle.wait()


class Pool:
    """Which handles there are to work on."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._active: list[SharedHandle] = []
        self._lingering: list[SharedHandle] = []
        self._coming = 0

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Reserve the place of a handle that is to be minted; gives False if all are taken."""
        is_free = len(self._active) + self._coming < ACTIVE
        self._coming += is_free
        try:
            yield is_free
        finally:
            self._coming -= is_free

    def add(self, mint: Call) -> None:
        """Let everybody work on a new handle."""
        self._active.append(SharedHandle(mint, self._random.randint(*_VERSIONS)))

    def pick(self) -> SharedHandle | None:
        """Return a handle to work on; None if there is none yet."""
        if self._lingering and self._random.random() < _LINGERING_CHANCE:
            return self._random.choice(self._lingering)
        return self._random.choice(self._active) if self._active else None

    def end(self, shared: SharedHandle, *, lingers: bool) -> list[SharedHandle]:
        """Take a handle away from the active ones, and return those that are retired by that."""
        self._active.remove(shared)
        if not lingers:
            return [shared]
        self._lingering.append(shared)
        return [self._lingering.pop(0)] if len(self._lingering) > LINGERING else []

    def end_all(self) -> list[SharedHandle]:
        """Take all handles away, and return them."""
        ended = [*self._lingering, *self._active]
        self._lingering, self._active = [], []
        return ended
