"""When the shim looks for a daemon, when it waits before it looks again, and when it gives up.

Pure: the time comes in with every call. What waits has one deadline, however often a daemon is found
and lost again before it:

    line sent    connection breaks          found    lost    found           given up
    ---|----------------|---------------------|-------|--------|----------------|
                        |<------------------- 10 s ---------------------------->|

Only a line that was settled, or a connection that lived long, makes the next break a first one. Giving up
is never remembered; the next line of the client starts anew.
"""

from __future__ import annotations

GIVE_UP_SECONDS = 10.0
"""How long a line waits for a daemon before it is answered without one."""
_FIRST_DELAY_SECONDS = 0.01
_MAX_DELAY_SECONDS = 1.0


class Retry:
    """The search for a daemon over the life of one shim; begins with wanting one."""

    __slots__ = ("_delay_seconds", "_next_at", "_since", "is_wanted")

    def __init__(self, now: float) -> None:
        self.is_wanted = True
        """True while there is reason to look for a daemon."""
        self._since: float | None = now
        """From when on the bound counts; None if nothing went wrong for what waits."""
        self._next_at = now
        self._delay_seconds = 0.0

    def note_first_line(self, now: float) -> None:
        """A line came and no other waits: what went wrong before is nothing to it."""
        self._since = now if self.is_wanted else None

    def want(self, now: float) -> None:
        """A line waits and there is no daemon: look for one."""
        if not self.is_wanted:
            self.is_wanted = True
            self._since = now
            self._next_at = max(self._next_at, now)

    def seconds_left(self, now: float) -> float:
        """Return how long to wait before the next attempt; 0 means that it is due."""
        return max(0.0, self._next_at - now)

    def begin(self, now: float) -> float:
        """An attempt that is due begins; return how long it may take, 0 if the bound has passed.

        Time in which the client kept the shim from looking, by not reading, does not count.
        """
        if self._since is not None:
            self._since += max(0.0, now - self._next_at)
        self._next_at = now
        return self.patience(now)

    def patience(self, now: float) -> float:
        """Return how long a daemon may still be looked for."""
        return max(0.0, (now if self._since is None else self._since) + GIVE_UP_SECONDS - now)

    def note_found(self) -> None:
        """A daemon greeted."""
        self.is_wanted = False

    def note_missed(self, now: float) -> None:
        """An attempt ended without a daemon, but the next one may find one."""
        self._delay(now)

    def note_lost(self, now: float, *, opened_at: float, has_progressed: bool) -> None:
        """A connection broke."""
        if has_progressed or now - opened_at > GIVE_UP_SECONDS:
            self._since, self._delay_seconds = None, 0.0
        if self._since is None:
            self._since = now
        self.is_wanted = True
        self._delay(now)

    def give_up(self) -> None:
        """Look for a daemon only when it is wanted again."""
        self.is_wanted = False
        self._since, self._delay_seconds = None, 0.0

    def _delay(self, now: float) -> None:
        """Put off the next attempt: not at all at first, then 10 ms, then always twice as long."""
        self._next_at = now + min(self._delay_seconds, self.patience(now))
        self._delay_seconds = min(max(self._delay_seconds * 2, _FIRST_DELAY_SECONDS), _MAX_DELAY_SECONDS)
