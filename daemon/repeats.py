"""Says a thing to the log once, however often it happens in a row."""

from __future__ import annotations

import logging
import time

QUIET_SECONDS = 60.0


class RepeatLog:
    """Logs an event, then keeps quiet about the same key for a while and counts. Safe in one thread only."""

    def __init__(self, logger: logging.Logger, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._logger = logger
        self._quiet_seconds = quiet_seconds
        self._last: dict[str, tuple[float, int]] = {}
        """When a key was last written, and how often it came since."""

    def error(self, key: str, message: str, error: BaseException) -> None:
        """Log an error with its traceback, unless the same key was logged a moment ago."""
        now = time.monotonic()
        at, suppressed = self._last.get(key, (-self._quiet_seconds, 0))
        if now - at < self._quiet_seconds:
            self._last[key] = (at, suppressed + 1)
            return
        self._last[key] = (now, 0)
        self._logger.error("%s repeats=%d", message, suppressed, exc_info=error)
