"""A disk that holds so many bytes: a SQLite VFS that counts what the files in one directory take."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import apsw
import pytest


class SmallDisk(apsw.VFS):
    """Lets nothing in the directory grow beyond what all of it together may take.

    What goes past the VFS counts too: the log's index is only counted, the reserve is refused as well.
    """

    def __init__(self, directory: Path, *, size_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.size_bytes = size_bytes
        self.name = f"small-{directory.parent.name}"
        super().__init__(self.name, "")
        monkeypatch.setattr("mcpstated.daemon.backends.reserve.allocate", self._allocate)
        monkeypatch.setattr("mcpstated.daemon.backends.room.free_bytes", lambda _directory: self.free_bytes)

    @property
    def free_bytes(self) -> int:
        """How much may still be written."""
        return max(0, self.size_bytes - sum(file.stat().st_size for file in self.directory.iterdir()))

    def xOpen(self, name: Any, flags: list[int]) -> _SmallFile:
        """Open the real file."""
        return _SmallFile(self, name, flags)

    def _allocate(self, descriptor: int, size_bytes: int) -> None:
        if size_bytes - os.fstat(descriptor).st_size > self.free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(descriptor, size_bytes)


class _SmallFile(apsw.VFSFile):
    def __init__(self, disk: SmallDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if offset + len(data) - self.xFileSize() > self._disk.free_bytes:
            raise apsw.FullError("disk full")
        super().xWrite(data, offset)
