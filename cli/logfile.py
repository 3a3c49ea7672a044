"""Read the end of the daemon's log, and follow it through its rotation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_BLOCK_BYTES = 65_536


def tail(path: str, count: int, *, end: int | None = None) -> list[str]:
    """Return the last `count` lines, reaching back into older files (`.1`, `.2`, ...) if there are that many.

    Args:
        end: Where in the current file to stop, in bytes; None means at its end.
    """
    lines: list[str] = []
    number = 0
    while len(lines) < count:
        try:
            with Path(f"{path}.{number}" if number else path).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                stop = size if number or end is None else min(end, size)
                lines = _last_lines(file, count - len(lines), stop) + lines
        except FileNotFoundError:
            break
        number += 1
    return lines


class Follower:
    """What is added to a log from now on, whole lines only.

    Args:
        path: The current file; it may be missing, and may be replaced by a new one at any time.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._rest = b""
        self._file = self._open()
        self.start = self._file.seek(0, os.SEEK_END) if self._file is not None else 0
        """Where it began in the file that was current then, in bytes."""

    def new_lines(self) -> list[str]:
        """Return the lines that were ended since the last call."""
        lines = list(self._read())
        if not self._is_current():
            lines += self._read()  # what came between reading and the rotation
            self.close()
            self._file = self._open()
            lines += self._read()
        return lines

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._rest = b""

    def _open(self) -> BinaryIO | None:
        try:
            return Path(self._path).open("rb")
        except FileNotFoundError:
            return None

    def _read(self) -> Iterator[str]:
        if self._file is None:
            return
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        yield from (_text(line) for line in lines)

    def _is_current(self) -> bool:
        if self._file is None:
            return False
        try:
            named = Path(self._path).stat()
        except FileNotFoundError:
            return True  # between two files; the old one may still grow
        held = os.fstat(self._file.fileno())
        return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def _last_lines(file: BinaryIO, count: int, end: int) -> list[str]:
    """Return the last lines before `end`, reading no more of the file than they need."""
    held = b""
    while end > 0 and held.count(b"\n") <= count:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        held = file.read(end - start) + held
        end = start
    lines = held.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [_text(line) for line in lines[-count:]]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")
