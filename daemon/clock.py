"""The store's clock: seconds since the Unix epoch that never go backward.

Every expiry is decided by this clock and by nothing else, so that a stepping wall clock can neither
revive a handle nor kill one (C21). While the wall clock stands behind, time goes on by the boot-time
clock, which also counts what the machine sleeps. A wall clock that runs ahead is followed at once when
the step is small, and only after it has stayed ahead for a while when it is large: a wrong clock is
put right by then, and a virtual machine that was paused is still caught up with.

Over a restart it goes on from the time that the store has kept: that of the newest change, or of the
last pass of the sweeper or orderly close, whichever is later. After a crash that may be a minute ago. If the
machine was not started anew meanwhile, the boot-time clock tells how long nobody looked, and a wall clock
that was set in that time is treated like one that is set while the store is open. Over a start of the
machine only the wall clock knows.

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


def _boot_name() -> str:
    """Return a name for the time since the machine was started; empty if the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as stream:
            return stream.read().strip()
    except OSError:
        return ""


class StoreClock:
    """Tells the time of one store. Owned by the event loop's thread."""

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        boot: Callable[[], float] = _boot_seconds,
        boot_name: str | None = None,
    ) -> None:
        """Start at the wall clock's time.

        Args:
            wall: Seconds since the epoch; may step.
            boot: Seconds since anything; never steps, and counts sleep.
            boot_name: What `boot` counts from; None to ask the system.
        """
        self._boot_name = _boot_name() if boot_name is None else boot_name
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

    def note(self) -> tuple[float, str]:
        """Return what `go_on` wants to have back at the next opening: the time, and a word on its origin."""
        now = self.now()
        ahead_since = "" if self._ahead_since is None else repr(self._ahead_since)
        return now, f"{self._boot_name},{self._anchor_boot!r},{ahead_since}"

    def go_on(self, newest_at: float, noted_at: float, noted_boot: str) -> None:
        """Go on from where a store stood.

        Args:
            newest_at: The clock was never earlier than this.
            noted_at: When it was noted last.
            noted_boot: What `note` returned then; empty if nothing is known.
        """
        self.never_before(newest_at)
        name, _, rest = noted_boot.partition(",")
        try:
            then, since = (float(text) if text else None for text in rest.split(","))
        except ValueError:
            return
        boot = self._boot()
        if not name or name != self._boot_name or then is None or boot < then:
            return
        self._anchor, self._anchor_boot = max(newest_at, noted_at + boot - then), boot
        self._ahead_since = since

    def _has_settled(self, boot: float) -> bool:
        if self._ahead_since is None:
            self._ahead_since = boot
        return boot - self._ahead_since >= SETTLE_SECONDS
