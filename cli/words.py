"""Sizes, times and counts as people read them."""

from __future__ import annotations

import time

from mcpstated.protocol import moments

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def size(size_bytes: int) -> str:
    """Return a size with its unit: `999 B`, `1.4 MiB`."""
    amount = float(size_bytes)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{int(amount)} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def span(seconds: float) -> str:
    """Return a length of time in its largest two units: `2 d 3 h`, `45 s`, `0 s`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for length, name in _SPANS:
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def ago(then: float, now: float) -> str:
    """Return how long ago a moment was, in one unit: `just now`, `3 min ago`."""
    seconds = int(now - then)
    for length, name in _SPANS:
        if seconds >= length:
            return f"{seconds // length} {name} ago"
    return "just now"


def until(then: float | None, now: float) -> str:
    """Return how far off a deadline is: `never`, `in 6 d`, `expired`."""
    if then is None:
        return "never"
    seconds = then - now
    if seconds <= 0:
        return "expired"
    for length, name in _SPANS:
        if seconds >= length:
            return f"in {round(seconds / length)} {name}"
    return "in 1 s"


def moment(unix: float) -> str:
    """Return a moment in local time: `2026-03-01 14:05:09`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))


def iso(unix: float | None) -> str | None:
    """Return a moment as programs read it, in the spelling of the tools' replies; None stays None."""
    return moments.moment(unix)


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 handle`, `3 handles`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
