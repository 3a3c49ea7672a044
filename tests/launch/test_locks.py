"""Ring 3: the start lock, and looking at the daemon's."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from mcpstated.locks import StartLock, is_locked


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    """C10: two starters at once would start two daemons."""
    path = str(tmp_path / "start.lock")
    first = StartLock.try_acquire(path)
    assert first is not None
    assert StartLock.try_acquire(path) is None
    first.release()
    second = StartLock.try_acquire(path)
    assert second is not None
    second.release()
    assert Path(path).exists(), "a lock on a removed file would mean nothing"


@pytest.mark.usefixtures("no_leaks")
def test_a_lock_on_a_file_that_was_replaced_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C18: somebody may move the whole directory away between open and flock."""
    path = tmp_path / "start.lock"
    really = fcntl.flock

    def replace_and_lock(fd: int, operation: int) -> None:
        path.unlink()
        really(fd, operation)

    monkeypatch.setattr(fcntl, "flock", replace_and_lock)
    assert StartLock.try_acquire(str(path)) is None


def test_a_lock_file_is_never_followed(tmp_path: Path) -> None:
    """A link in its place could make two directories share a lock, or a victim's file be made."""
    (tmp_path / "start.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="start"):
        StartLock.try_acquire(str(tmp_path / "start.lock"))
    assert not (tmp_path / "elsewhere").exists()


def test_looking_at_a_lock_does_not_take_it(tmp_path: Path) -> None:
    """The daemon's lock says whether one lives; a look must not keep the next one from taking it."""
    path = tmp_path / "daemon.lock"
    assert not is_locked(str(path))
    assert not path.exists()
    held = os.open(path, os.O_RDWR | os.O_CREAT)
    assert not is_locked(str(path))
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert is_locked(str(path))
    os.close(held)
    assert not is_locked(str(path))
