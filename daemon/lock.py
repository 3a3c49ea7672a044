"""File locks: the one that proves which daemon owns a directory, and the one taken to start it.

An flock belongs to the open file, so it ends with the process, however that ends. The content of the
lock file is information for people; only the lock is the truth. Lock files are never removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Self


class FileLock:
    """An exclusive flock on one file, made with mode 0600 if absent."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free.

        Raises:
            OSError: The file cannot be opened.
        """
        if self._fd is not None:
            return True
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        if not self._is_current(fd):
            os.close(fd)  # the file was replaced between open and flock: a lock on it means nothing
            return False
        self._fd = fd
        return True

    def note(self, text: str) -> None:
        """Write what people find in the file; the lock must be held."""
        assert self._fd is not None
        with contextlib.suppress(OSError):  # on a full disk it goes unsaid
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)

    @property
    def is_current(self) -> bool:
        """True if the lock is held on the file that its path names now."""
        return self._fd is not None and self._is_current(self._fd)

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()

    def _is_current(self, fd: int) -> bool:
        try:
            named = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        held = os.fstat(fd)
        return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)
