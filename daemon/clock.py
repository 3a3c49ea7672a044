"""The store's clock: seconds since the Unix epoch that never go backward.

Every expiry is decided by this clock and by nothing else, so that a stepping wall clock can neither
revive a handle nor kill one (C21). While the wall clock stands behind, time goes on by the boot-time
clock, which also counts what the machine sleeps. A wall clock that runs ahead is followed at once when
the step is small, and only after it has stayed ahead for a while when it is large: a wrong clock is
put right by then, and a virtual machine that was paused is still caught up with.

Over a restart it goes on from the time that the store has kept: that of the newest change, or of the
last pass of the sweeper or orderly close, whichever is later. After a crash that may be a minute ago.

Example, in seconds: at wall 1000 the wall clock steps to 400; ten seconds later `now()` is 1010. It
steps to 90000: `now()` goes on from 1010 and, if that lasts for `SETTLE_SECONDS`, takes over the wall.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS_PER_DAY = 86_400.0
SMALL_STEP_SECONDS = 10.0
"""A wall clock at most this far ahead is simply right."""
SETTLE_SECONDS = 900.0
"""How long a larger lead must last before it is believed."""

_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux counts sleep only in CLOCK_BOOTTIME; the CLOCK_MONOTONIC of macOS counts it too."""


def _boot_seconds() -> float:
    return time.clock_gettime(_BOOT_CLOCK)


class StoreClock:
    """Tells the time of one store. Owned by the event loop's thread."""

    def __init__(
        self, *, wall: Callable[[], float] = time.time, boot: Callable[[], float] = _boot_seconds
    ) -> None:
        """Start at the wall clock's time.

        Args:
            wall: Seconds since the epoch; may step.
            boot: Seconds since anything; never steps, and counts sleep.
        """
        self._wall = wall
        self._boot = boot
        self._anchor = wall()
        self._anchor_boot = boot()
        self._ahead_since: float | None = None

    def now(self) -> float:
        """Return the seconds since the epoch; never less than before."""
        boot = self._boot()
        wall = self._wall()
        steady = self._anchor + max(0.0, boot - self._anchor_boot)
        lead = wall - steady
        if lead <= 0.0:
            self._ahead_since = None
        elif lead <= SMALL_STEP_SECONDS or self._has_settled(boot):
            self._ahead_since = None
            steady = wall
        self._anchor, self._anchor_boot = steady, max(boot, self._anchor_boot)
        return steady

    def never_before(self, moment: float) -> None:
        """Go on from `moment` if the clock is behind it: a store's time goes on where it stood."""
        if self.now() < moment:
            self._anchor = moment

    def _has_settled(self, boot: float) -> bool:
        if self._ahead_since is None:
            self._ahead_since = boot
        return boot - self._ahead_since >= SETTLE_SECONDS
