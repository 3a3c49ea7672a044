"""How long the shim stays after the client's input has ended, so that answers still reach it.

Pure: the time comes in with every call. A request that is never answered (an open subscription) must
not keep the shim, nor a client that stopped reading.
"""

from __future__ import annotations

QUIET_SECONDS = 2.0
"""How long answers are waited for although nothing moves."""
ANSWER_SECONDS = 10.0
"""How long answers are waited for at all; also how long a client may read nothing of what is left."""
FLUSH_SECONDS = 60.0
"""How long a client may take to read what is left."""


class Ending:
    """The clock of one shim's end."""

    __slots__ = ("_ended_at", "_moved_at")

    def __init__(self, now: float) -> None:
        self._ended_at: float | None = None
        self._moved_at = now

    @property
    def has_begun(self) -> bool:
        """True once the client's input has ended."""
        return self._ended_at is not None

    def begin(self, now: float) -> None:
        """The client's input has ended."""
        self._ended_at = self._moved_at = now

    def note_moved(self, now: float) -> None:
        """A byte went to the client or came from the daemon."""
        self._moved_at = now

    def note_connected(self, now: float) -> None:
        """A daemon was found: a slow start is not held against the answers."""
        self._moved_at = now
        if self._ended_at is not None:
            self._ended_at = now

    def seconds_for_answers(self, now: float) -> float:
        """Return how long answers are still waited for; infinite before the end."""
        if self._ended_at is None:
            return float("inf")
        return max(0.0, min(self._moved_at + QUIET_SECONDS, self._ended_at + ANSWER_SECONDS) - now)

    def seconds_for_flush(self, now: float) -> float:
        """Return how long the client may still take to read; infinite before the end."""
        if self._ended_at is None:
            return float("inf")
        return max(0.0, min(self._moved_at + ANSWER_SECONDS, self._ended_at + FLUSH_SECONDS) - now)
