"""The backups that are made by themselves: their names, which one is due, and which ones go.

    state-20261201T051423Z-r1042.db.gz

The name says when it was made and of which revision. Nothing without such a name is ever touched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_NAME = re.compile(r"state-(\d{8}T\d{6}Z)-r(\d{1,19})\.db\.gz")
_LEFTOVER = re.compile(_NAME.pattern + r"\.(copy|part)(-journal)?")
_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class KeptBackup:
    """A backup that lies there."""

    path: Path
    at: float
    """When it was begun, in seconds since the Unix epoch."""
    revision: int
    size_bytes: int


def directory_of(database: Path) -> Path:
    """Return where the backups of a store lie that are made without a name."""
    return database.parent / "backups"


def backup_name(at: float, revision: int) -> str:
    """Return the name of a backup."""
    return f"state-{datetime.fromtimestamp(at, UTC).strftime(_TIME)}-r{revision}.db.gz"


def kept_backups(directory: Path) -> list[KeptBackup]:
    """Return the backups in a directory, the newest first; none if there is no such directory."""
    found = []
    for path, match in _matching(directory, _NAME):
        with suppress(ValueError, FileNotFoundError):  # no date, or removed at this moment
            at = datetime.strptime(match[1], _TIME).replace(tzinfo=UTC).timestamp()
            found.append(KeptBackup(path, at, int(match[2]), path.stat().st_size))
    return sorted(found, key=lambda kept: (kept.at, kept.revision), reverse=True)


def newest_of(backups: Sequence[KeptBackup], *, now: float) -> KeptBackup | None:
    """Return the newest backup; one from the future, made before the clock was set back, does not count."""
    return next((kept for kept in backups if kept.at <= now), None)


def is_due(newest: KeptBackup | None, *, now: float, revision: int, hours: float) -> bool:
    """Tell whether it is time for another: something changed, and the newest one is that many hours old."""
    if revision == 0:
        return False
    if newest is None:
        return True
    return now - newest.at >= hours * 3600 and newest.revision != revision


def excess(
    backups: Sequence[KeptBackup], *, now: float, keep_files: int, keep_bytes: int
) -> list[KeptBackup]:
    """Return which go so that the rest fits; the newest one always stays, those from the future go first.

    Args:
        backups: The newest first.
    """
    past = [kept for kept in backups if kept.at <= now]
    future = [kept for kept in backups if kept.at > now]
    going, size_bytes = [], 0
    for place, kept in enumerate([*past, *future]):
        size_bytes += kept.size_bytes
        if place and (place >= keep_files or size_bytes > keep_bytes):
            going.append(kept)
    return going


def leftovers(directory: Path) -> list[Path]:
    """Return what interrupted backups left."""
    return [path for path, _ in _matching(directory, _LEFTOVER)]


def _matching(directory: Path, pattern: re.Pattern[str]) -> list[tuple[Path, re.Match[str]]]:
    try:
        paths = [path for path in directory.iterdir() if path.is_file() and not path.is_symlink()]
    except FileNotFoundError:
        return []
    return [(path, match) for path in paths if (match := pattern.fullmatch(path.name))]
