"""When the shim looks for a daemon, when it waits before it looks again, and when it gives up.

Pure: the time comes in with every call. Giving up is never remembered; the next line of the client
starts anew.
"""

from __future__ import annotations

GIVE_UP_SECONDS = 10.0
"""How long a line waits for a daemon before it is answered without one."""
_FIRST_DELAY_SECONDS = 0.01
_MAX_DELAY_SECONDS = 1.0


class Retry:
    """The search for a daemon over the life of one shim; begins with wanting one."""

    __slots__ = ("_delay_seconds", "_next_at", "_stuck_since", "_wanted_since", "is_wanted")

    def __init__(self, now: float) -> None:
        self.is_wanted = True
        """True while there is reason to look for a daemon."""
        self._wanted_since = now
        self._next_at = now
        self._delay_seconds = 0.0
        self._stuck_since: float | None = None
        """Since when every connection ended without having settled a line; None if the last one did."""

    def want(self, now: float) -> None:
        """A line waits, or a connection broke: look for a daemon."""
        if not self.is_wanted:
            self.is_wanted = True
            self._wanted_since = now

    def seconds_left(self, now: float) -> float:
        """Return how long to wait before the next attempt; 0 means that it is due."""
        return max(0.0, self._next_at - now)

    def note_found(self) -> None:
        """A daemon greeted."""
        self.is_wanted = False

    def note_absent(self, now: float) -> bool:
        """There is none and it must not be started from here; True if it is time to give up."""
        self._delay(now)
        return now >= self._wanted_since + GIVE_UP_SECONDS

    def note_lost(self, now: float, *, opened_at: float, has_progressed: bool) -> bool:
        """A connection broke; True if that goes on for so long that it is time to give up.

        A connection that settled something, or lived long, makes the next loss a first one.
        """
        if has_progressed or now - opened_at > GIVE_UP_SECONDS:
            self._stuck_since, self._delay_seconds = None, 0.0
        if self._stuck_since is None:
            self._stuck_since = now
        self.want(now)
        self._delay(now)
        return now - self._stuck_since > GIVE_UP_SECONDS

    def give_up(self) -> None:
        """Look for a daemon only when it is wanted again."""
        self.is_wanted = False
        self._stuck_since, self._delay_seconds = None, 0.0

    def _delay(self, now: float) -> None:
        """Put off the next attempt: not at all at first, then 10 ms, then always twice as long."""
        self._next_at = now + self._delay_seconds
        self._delay_seconds = min(max(self._delay_seconds * 2, _FIRST_DELAY_SECONDS), _MAX_DELAY_SECONDS)
