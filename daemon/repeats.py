"""Says a thing to the log once, however often it happens in a row."""

from __future__ import annotations

import logging
import time

QUIET_SECONDS = 60.0


class RepeatLog:
    """Logs an event, then keeps quiet about the same kind for a while and counts. One thread only."""

    def __init__(self, logger: logging.Logger, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._logger = logger
        self._quiet_seconds = quiet_seconds
        self._last: dict[tuple[str, type[BaseException]], tuple[float, int]] = {}
        """When a kind was last written, and how often it came since."""

    def error(self, event: str, error: BaseException, *, has_text: bool = True, **fields: object) -> None:
        """Log an error, unless the same event with the same kind of error was logged a moment ago.

        Args:
            has_text: False if the error's text may hold parts of a state: then only its kind is written.
        """
        now = time.monotonic()
        kind = event, type(error)
        at, suppressed = self._last.get(kind, (-self._quiet_seconds, 0))
        if now - at < self._quiet_seconds:
            self._last[kind] = (at, suppressed + 1)
            return
        self._last[kind] = (now, 0)
        fields = {**fields, "error": type(error).__name__, "repeats": suppressed}
        self._logger.error(event, exc_info=error if has_text else None, extra={"fields": fields})
