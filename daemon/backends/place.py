"""Whether the files that a database connection has open are still the ones that their paths name.

The write-ahead log and its index count as much as the database: a commit into a log that was removed would
be lost with the process, and with two indexes two programs would not see each other's locks.
"""

from __future__ import annotations

import os
from pathlib import Path

Identity = tuple[int, int] | None
_SUFFIXES = ("", "-wal", "-shm")


class Place:
    """The files of one open database. Knows no difference until `remember`."""

    def __init__(self, path: Path | str) -> None:
        self._path = str(path)
        self._files: tuple[str, ...] = ()
        self._remembered: tuple[Identity, ...] | None = None

    def remember(self) -> None:
        """Take the files that are there now for the right ones."""
        real = os.path.realpath(self._path)  # SQLite puts the others beside what a link leads to
        # The database by the name that was given: a link that leads elsewhere by now must be noticed.
        self._files = (self._path, *(real + suffix for suffix in _SUFFIXES[1:]))
        self._remembered = self._look()

    def what_changed(self) -> str | None:
        """Return which of the files was removed or replaced, in words; None if none was."""
        if self._remembered is None:
            return None
        found = self._look()
        if found == self._remembered:
            return None
        changed = next(
            suffix
            for suffix, now, then in zip(_SUFFIXES, found, self._remembered, strict=True)
            if now != then
        )
        return f"{os.path.basename(self._path)}{changed}"

    def _look(self) -> tuple[Identity, ...]:
        return tuple(map(_identity, self._files))


def _identity(path: str) -> Identity:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
