"""How a moment is spelled wherever programs and models read it: in replies, errors and `--json`."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import overload


@overload
def moment(unix: float) -> str: ...
@overload
def moment(unix: float | None) -> str | None: ...
def moment(unix: float | None) -> str | None:
    """Return a moment as ISO 8601 in UTC to the millisecond: `2027-01-15T08:00:00.250Z`.

    Args:
        unix: Seconds since the Unix epoch; None, which stays None, for a moment that never comes.
    """
    return None if unix is None else _spelled(unix)


@lru_cache(maxsize=4096)
def _spelled(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
