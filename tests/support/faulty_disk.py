"""A disk that fails when a test says so: a SQLite VFS over the real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import apsw

Fault = Callable[[], Exception]


def disk_full() -> Exception:
    """Return what SQLite is told when a write finds no space."""
    return apsw.FullError("disk full")


def read_only() -> Exception:
    """Return what SQLite is told when the disk was made read-only."""
    return apsw.ReadOnlyError("read-only file system")


def io_error() -> Exception:
    """Return what SQLite is told when the hardware fails."""
    return apsw.IOError("input/output error")


class FaultyDisk(apsw.VFS):
    """Passes everything on, until `fail` names an operation that is to fail from then on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fault: Fault | None = None
        self.operations: frozenset[str] = frozenset()
        self.faults = 0
        """How many operations have failed."""
        self.syncs: Counter[str] = Counter()
        """Flushes of each file, by what its name adds to the database's."""
        super().__init__(name, "")

    def fail(self, fault: Fault, *operations: str) -> None:
        """Let these operations (`write`, `sync`, `read`) fail."""
        self.fault, self.operations, self.faults = fault, frozenset(operations), 0

    def work(self) -> None:
        """Let everything work again."""
        self.operations = frozenset()

    def check(self, operation: str) -> None:
        """Raise if the operation is to fail."""
        if operation in self.operations and self.fault is not None:
            self.faults += 1
            raise self.fault()

    def xOpen(self, name: Any, flags: list[int]) -> _FaultyFile:
        """Open the real file behind a faulty one."""
        return _FaultyFile(self, name, flags)


class _FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._kind = "-wal" if path.endswith("-wal") else ""
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.check("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.check("sync")
        self._disk.syncs[self._kind] += 1
        super().xSync(flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.check("read")
        return super().xRead(amount, offset)
