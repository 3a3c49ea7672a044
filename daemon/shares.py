"""Everybody's share of one event loop: who must wait for others, and how long.

The loop does one thing at a time, so what one process asks for is what all others wait for. While nobody
else is at work a process may have all of it. In company it has only few requests running at once, and what
it sends and asks for beyond a burst comes at a bounded rate. Nothing is refused for that: the session reads
on later, and the rest waits in the socket. Opening connections is bounded in any case, for whoever connects
again and again never asks for anything; what is too much is closed unheard, and clients try that again.
Owned by the event loop's thread; the clock is trio's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import trio

COMPANY_SECONDS = 5.0
"""How long after its last request somebody counts as at work."""
REQUESTS_ALONE = 16
REQUESTS_IN_COMPANY = 2
"""Requests of one process that run at once. More would not make it faster: the loop is what all wait for."""
BURST_BYTES = 1024 * 1024
BYTES_PER_SECOND = 2 * 1024 * 1024
"""What a process may send and be sent in company, and how far it may be ahead of that."""
MARK_BYTES = 16
"""What a value in a large line costs, as if it were so many bytes more."""
TURN_BYTES = 4096
"""What a turn of the loop costs that would not have been needed.

A message costs so much beside its own size if it came together with the one before it, and a piece of a frame
costs at least so much. Who waits for its answers and sends whole frames never pays it; who sends thousands at
once, or byte by byte, gets through at some 500 a second while others are there.
"""
_DEBT_BYTES = 32 * 1024 * 1024
"""Nobody is made to wait for more than this."""
CONNECTION_BURST = 256
CONNECTIONS_PER_SECOND = 64.0
_LOOK_SECONDS = 0.1
"""How often somebody who waits looks whether there still is company."""
_LEAST_SECONDS = 0.001
"""A shorter wait may be none for the clock, and what is owed would never get less."""
_KEPT_SHARES = 1_024
"""Processes that are remembered, unless more than so many have a connection open."""


class _Bucket:
    """What may be used up at once, and how fast it fills again; may be overdrawn."""

    __slots__ = ("_burst", "_filled_at", "_left", "_rate")

    def __init__(self, burst: float, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = burst
        self._filled_at = trio.current_time()

    def take(self, amount: float, *, debt: float) -> None:
        """Use some up, at most so far that `debt` is owed."""
        self._left = max(-debt, self._filled() - amount)

    def seconds_in_debt(self) -> float:
        """Return how long it takes until nothing is owed any more."""
        return max(0.0, -self._filled() / self._rate)

    def _filled(self) -> float:
        now = trio.current_time()
        self._left = min(self._burst, self._left + (now - self._filled_at) * self._rate)
        self._filled_at = now
        return self._left


class Share:
    """What one process uses. All its sessions have the same one."""

    __slots__ = ("_bytes", "_connections", "_ended", "_running", "_shares", "connections", "sessions")

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._bytes = _Bucket(BURST_BYTES, BYTES_PER_SECOND)
        self._connections = _Bucket(CONNECTION_BURST, CONNECTIONS_PER_SECOND)
        self._running = 0
        self._ended = trio.Event()
        self.connections = 0
        """Connections that are open, those that have not said hello included."""
        self.sessions = 0
        """Those that have."""

    def charge(self, size_bytes: int) -> None:
        """Count what was received or sent."""
        self._bytes.take(size_bytes, debt=_DEBT_BYTES)

    async def pace(self) -> None:
        """Return when this process may go on: at once while it is alone, or within its rate."""
        while (seconds := self._bytes.seconds_in_debt()) and self.is_in_company:
            await trio.sleep(min(max(seconds, _LEAST_SECONDS), _LOOK_SECONDS))

    def note_request(self) -> None:
        """Say that this process asks for something."""
        self._shares.note_request(self)

    @property
    def is_in_company(self) -> bool:
        """True if another process is at work."""
        return self._shares.has_others(self)

    @property
    def requests_at_once(self) -> int:
        """How many requests this process may have running now."""
        return REQUESTS_IN_COMPANY if self.is_in_company else REQUESTS_ALONE

    @property
    def has_room(self) -> bool:
        """True if one more request may begin."""
        return self._running < self.requests_at_once

    def begin_request(self) -> None:
        """Count a request as running."""
        self._running += 1

    def end_request(self) -> None:
        """Count it no more, and let those look again who wait."""
        self._running -= 1
        self.note_end()

    def note_end(self) -> None:
        """Let those look again who wait for an end."""
        self._ended.set()
        self._ended = trio.Event()

    async def request_ended(self) -> None:
        """Return after the next request of this process has ended."""
        await self._ended.wait()

    @contextmanager
    def connection(self) -> Iterator[Share]:
        """Count a connection as open while the block runs."""
        self.connections += 1
        try:
            yield self
        finally:
            self.connections -= 1

    def may_connect(self) -> bool:
        """Count one more connection; False if this process has too many, or had of late."""
        if self.connections >= self._shares.max_connections_of_one or self._connections.seconds_in_debt():
            return False
        self._connections.take(1.0, debt=1.0)
        return True


class Shares:
    """The shares of all processes, and who was at work last.

    Args:
        max_connections: What all may have open together; one process gets three quarters of them.
    """

    def __init__(self, max_connections: int = 4096) -> None:
        self.max_connections_of_one = max_connections - max_connections // 4
        self._shares: OrderedDict[int, Share] = OrderedDict()
        self._newest: tuple[Share, float] | None = None
        """Who made the last request, and when."""
        self._newest_other: tuple[Share, float] | None = None
        """The last request of anybody else."""

    def of(self, pid: int) -> Share:
        """Return the share of a process; one that the system does not name gets one of its own."""
        if not pid:
            return Share(self)
        share = self._shares.get(pid)
        if share is None:
            self._forget_some()
            share = self._shares[pid] = Share(self)
        self._shares.move_to_end(pid)
        return share

    def note_request(self, share: Share) -> None:
        """Say that somebody asks for something."""
        if self._newest is not None and self._newest[0] is not share:
            self._newest_other = self._newest
        self._newest = (share, trio.current_time())

    def has_others(self, share: Share) -> bool:
        """True if somebody else than `share` made a request a moment ago."""
        seen = self._newest
        if seen is not None and seen[0] is share:
            seen = self._newest_other
        return seen is not None and trio.current_time() - seen[1] < COMPANY_SECONDS

    def _forget_some(self) -> None:
        """Keep the table small: of those with nothing open, whoever connected longest ago goes first."""
        spare = len(self._shares) - _KEPT_SHARES + 1
        if spare > 0:
            unused = (pid for pid, share in self._shares.items() if not share.connections)
            for pid in list(islice(unused, spare)):
                del self._shares[pid]
