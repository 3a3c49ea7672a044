"""A disk that remembers every step, so that a power cut can be played at any of them.

A SQLite VFS over the real one records what is done to the files of one directory; steps that the engine
takes past SQLite (a rename, a flush of a directory) are recorded too while `record_python` is open. The
recording is a list of steps in the order in which they happened; its length is a moment.
`support.disk_states` says what the disk may hold at each. The log's index is memory and not recorded.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import apsw


@dataclass(frozen=True, slots=True)
class Bound:
    """A name in the directory leads to a file from now on, or to none. Lasting after `DirectorySynced`."""

    name: str
    file: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """A file was there, whole and on the disk, before the recording knew of it."""

    name: str
    file: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Wrote:
    """Bytes were written to a file. Lasting after the file's next `Synced`."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncated:
    """A file was cut. Lasting after the file's next `Synced`."""

    file: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Synced:
    """All that was done to the file before is on the disk for good."""

    file: int


@dataclass(frozen=True, slots=True)
class DirectorySynced:
    """All names are on the disk for good."""


Step: TypeAlias = Bound | Found | Wrote | Truncated | Synced | DirectorySynced

_MAKES_NAME_LAST = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
"""Files of which SQLite flushes the directory with their first flush, if they may have been created."""


class PowerCut(apsw.VFS):
    """Records what happens to the files in one directory. Thread-safe."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.steps: list[Step] = []
        self._files: dict[str, int] = {}
        """What the names lead to now."""
        self._count = 0
        self._lock = threading.RLock()
        super().__init__(name, "")

    @property
    def moment(self) -> int:
        """How much has happened: a cut now comes after so many steps."""
        return len(self.steps)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        """Open the real file, and take note of it if it lies in the directory."""
        path = None if name is None else Path(name if isinstance(name, str) else name.filename())
        if path is None or path.parent != self.directory:
            return apsw.VFSFile("", name, flags)
        with self._lock:
            existed = path.exists()
            asked = flags[0]
            opened = _RecordedFile(self, path.name, name, flags)
            opened.number = self._number_of(path, existed)
            opened.flushes_name = bool(asked & apsw.SQLITE_OPEN_CREATE and asked & _MAKES_NAME_LAST)
        return opened

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Remove the real file."""
        with self._lock:
            super().xDelete(filename, syncdir)
            path = Path(filename)
            if path.parent == self.directory:
                self._unbind(path.name)
                if syncdir:
                    self.record(DirectorySynced())

    def record(self, step: Step) -> None:
        """Add a step."""
        with self._lock:
            self.steps.append(step)

    @contextmanager
    def record_python(self) -> Iterator[None]:
        """Record renames, removals and flushes that the process asks the system for itself."""
        originals = {name: getattr(os, name) for name in ("rename", "unlink", "fsync")}
        os.rename = self._recorded(originals["rename"], self._renamed)
        os.unlink = self._recorded(originals["unlink"], self._unlinked)
        os.fsync = self._recorded(originals["fsync"], self._flushed)
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(os, name, original)

    def _recorded(self, real: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                result = real(*arguments, **options)
                note(*arguments)
                return result

        return call

    def _renamed(self, source: Any, target: Any) -> None:
        old, new = Path(source), Path(target)
        if old.parent == new.parent == self.directory and old.name in self._files:
            number = self._files[old.name]
            self._unbind(old.name)
            self._bind(new.name, number)

    def _unlinked(self, path: Any) -> None:
        if Path(path).parent == self.directory:
            self._unbind(Path(path).name)

    def _flushed(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if os.path.samestat(found, self.directory.stat()):
            self.record(DirectorySynced())
        for name, number in self._files.items():
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(found, (self.directory / name).stat()):
                    self.record(Synced(number))

    def _number_of(self, path: Path, existed: bool) -> int:
        if path.name in self._files:
            return self._files[path.name]
        self._count += 1
        if existed:
            self._files[path.name] = self._count
            self.record(Found(path.name, self._count, path.read_bytes()))
        else:
            self._bind(path.name, self._count)
        return self._count

    def _bind(self, name: str, number: int) -> None:
        self._files[name] = number
        self.record(Bound(name, number))

    def _unbind(self, name: str) -> None:
        if self._files.pop(name, None) is not None:
            self.record(Bound(name, None))


class _RecordedFile(apsw.VFSFile):
    def __init__(self, disk: PowerCut, own_name: str, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self.own_name = own_name
        self.number = 0
        self.flushes_name = False
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._disk.record(Wrote(self.number, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._disk.record(Truncated(self.number, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.record(Synced(self.number))
        if self.flushes_name:
            self.flushes_name = False
            self._disk.record(DirectorySynced())
