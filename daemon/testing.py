"""Fakes for tests of what stands on the engine: time that a test moves, and commits that it can hold.

They are real parts with a handle to turn, not stand-ins: the database below is the one that users have.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from mcpstated.daemon.backends.sqlite import SQLiteBackend
from mcpstated.daemon.clock import StoreClock
from mcpstated.daemon.engine import Engine
from mcpstated.daemon.feed import Feed
from mcpstated.protocol.limits import Limits

if TYPE_CHECKING:
    from mcpstated.daemon.backends.interface import NewChange, Outcome

DEFAULT_LIMITS = Limits()


class ManualTime:
    """A wall clock and a boot clock that move only when told to."""

    def __init__(self, wall: float = 1_700_000_000.0, boot: float = 5_000.0) -> None:
        self.wall = wall
        self.boot = boot
        self.boot_name = secrets.token_hex(4)
        """Another one for each start of the machine."""

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass, as both clocks see it."""
        self.wall += seconds
        self.boot += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back without any time passing."""
        self.wall += seconds

    def clock(self) -> StoreClock:
        """Return a store's clock that reads these two."""
        return StoreClock(wall=lambda: self.wall, boot=lambda: self.boot, boot_name=self.boot_name)


class GatedBackend(SQLiteBackend):
    """A SQLite backend whose commits a test can hold back, count and let fail."""

    def __init__(self, path: Path | str, *, limits: Limits = DEFAULT_LIMITS, vfs: str | None = None) -> None:
        super().__init__(path, limits=limits, vfs=vfs)
        self.batch_sizes: list[int] = []
        """How many changes each batch had, held ones included."""
        self.next_failure: Exception | None = None
        """What the next append raises instead of storing anything."""
        self._open_gate = trio.Event()
        self._open_gate.set()
        self._arrived = trio.Event()

    def hold(self) -> None:
        """Keep every batch from being stored until `release`."""
        self._open_gate = trio.Event()
        self._arrived = trio.Event()

    def release(self) -> None:
        """Store what was held, and go on as usual."""
        self._open_gate.set()

    async def wait_for_batch(self) -> None:
        """Return when a batch waits at the gate, or has gone through it since `hold`."""
        await self._arrived.wait()

    async def append(self, changes: Sequence[NewChange], settled: Mapping[bytes, int]) -> Sequence[Outcome]:
        """Wait for the gate, then fail or store."""
        self.batch_sizes.append(len(changes))
        self._arrived.set()
        await self._open_gate.wait()
        failure, self.next_failure = self.next_failure, None
        if failure is not None:
            raise failure
        return await super().append(changes, settled)


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """An engine that is open, and what a test needs to steer it."""

    store: Engine
    backend: GatedBackend
    feed: Feed
    time: ManualTime


@asynccontextmanager
async def open_engine(
    path: Path | str,
    *,
    limits: Limits = DEFAULT_LIMITS,
    time: ManualTime | None = None,
    backend: GatedBackend | None = None,
    sweep_seconds: float | None = None,
) -> AsyncIterator[RunningEngine]:
    """Run an engine on a database file until the block ends; its sweeper runs when a test says so.

    Args:
        time: Share it between two openings of one store to let time go on.
    """
    time = time or ManualTime()
    backend = backend or GatedBackend(path, limits=limits)
    feed = Feed()
    engine = Engine(backend, clock=time.clock(), limits=limits, feed=feed, sweep_seconds=sweep_seconds)
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        try:
            yield RunningEngine(engine, backend, feed, time)
        finally:
            nursery.cancel_scope.cancel()
