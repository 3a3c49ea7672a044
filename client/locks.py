"""The two file locks as a client sees them: one to take while starting a daemon, one only to look at.

An flock belongs to the open file and ends with its process, however that ends, so nobody is ever
locked out by a crash. Lock files are never removed: a lock on a removed file would mean nothing.
"""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class StartLock:
    """Held across probe, spawn and ready by whoever starts a daemon."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def try_acquire(cls, path: str) -> Self | None:
        """Take the lock, or return None if somebody else holds it.

        Raises:
            OSError: The lock file cannot be made or locked.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_mode & 0o600 != 0o600:
                os.fchmod(fd, 0o600)  # a umask took it away, and nobody could open it any more
            held, named = os.fstat(fd), os.stat(path, follow_symlinks=False)
            if (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino):
                return cls(fd)
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # held by another, or the file was replaced meanwhile
        return None

    def release(self) -> None:
        """Let others start a daemon; done once."""
        os.close(self._fd)


def is_locked(path: str) -> bool:
    """Tell whether another process holds an exclusive lock on the file; takes a shared one for an instant."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False
