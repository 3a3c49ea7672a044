"""Disk space that is set aside, so that a store on a full disk can still be opened and cleared up.

The space is held by a file beside the database that means nothing. `mcpstated.daemon.backends.room` decides
when it is given up and when it is asked for again. How much that is worth depends on the file system: one
that compresses, deduplicates or copies on write may give back less than was taken.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcpstated.daemon.logs import log_event

log = logging.getLogger("mcpstated.engine")

SUFFIX = "-reserve"
"""What the file's name adds to the database's."""
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a write is told where there is no space: on the disk, in a quota, for a file of a limited process."""
_PART_OF_DISK = 8
"""On a small disk the reserve takes at most one such part of it."""
_BLOCK_BYTES = 4096


def allocate(descriptor: int, size_bytes: int) -> None:
    """Make the file that long, with all of it on the disk. Raises: OSError."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
        else:
            return
    for offset in range(0, size_bytes, _BLOCK_BYTES):  # random, or a file system might store next to nothing
        os.pwrite(descriptor, os.urandom(min(_BLOCK_BYTES, size_bytes - offset)), offset)


class Reserve:
    """The file that holds the space. Used by one thread at a time."""

    def __init__(self, database: Path, size_bytes: int) -> None:
        """Name it; nothing is touched before `take`.

        Args:
            size_bytes: How much to hold; 0 for nothing, and then it counts as held.
        """
        self.path = database.with_name(database.name + SUFFIX)
        self._wanted_bytes = size_bytes
        self._is_held = size_bytes == 0
        self._is_impossible = size_bytes == 0

    @property
    def is_held(self) -> bool:
        """True if the space is set aside, or cannot be for another reason than that there is none."""
        return self._is_held

    @property
    def size_bytes(self) -> int:
        """How much is held, or would be: less than was asked for on a small disk."""
        try:
            disk = os.statvfs(self.path.parent)
        except OSError:
            return self._wanted_bytes
        return min(self._wanted_bytes, disk.f_blocks * disk.f_frsize // _PART_OF_DISK)

    def take(self) -> bool:
        """Set the space aside unless it is already; False if the disk has none to spare."""
        if not self._is_held:
            try:
                with self._open() as descriptor:
                    self._fill(descriptor)
            except OSError as error:
                if error.errno in NO_SPACE:
                    return False
                # Not for want of space: then a store without a reserve is better than none.
                log_event(log, "warning", "no disk space was set aside", reason=error.strerror or "")
                self._is_impossible = True
            self._is_held = True
        return True

    def look(self) -> bool:
        """Take it again if somebody removed the file; False if it is not to be had."""
        if self._is_held and not self._is_impossible:
            self._is_held = self.path.exists()
        return self.take()

    def give_up(self) -> bool:
        """Give the space back to the disk; False if there was none to give."""
        self._is_held = self._is_impossible
        if self._is_impossible:
            return False
        try:
            with self._open() as descriptor:
                held_bytes = os.fstat(descriptor).st_size
                os.ftruncate(descriptor, 0)
                os.fsync(descriptor)
        except OSError:
            return False
        return held_bytes > 0

    @contextmanager
    def _open(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _fill(self, descriptor: int) -> None:
        found, size_bytes = os.fstat(descriptor), self.size_bytes
        if found.st_size >= size_bytes and found.st_blocks * 512 >= size_bytes:
            return
        try:
            allocate(descriptor, size_bytes)
        except OSError:
            with contextlib.suppress(OSError):  # what was got of it may be all that somebody else needs
                os.ftruncate(descriptor, found.st_size)
            raise
