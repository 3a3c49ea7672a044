"""Ring 2: file locks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mcpstated.daemon.lock import FileLock

HOLD = """
import sys
from mcpstated.daemon.lock import FileLock
lock = FileLock(sys.argv[1])
assert lock.try_acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_held_lock_is_not_given_twice(tmp_path: Path) -> None:
    """One directory, one daemon."""
    path = str(tmp_path / "lock")
    with FileLock(path) as first, FileLock(path) as second:
        assert first.try_acquire()
        assert first.try_acquire()
        assert not second.try_acquire()

        first.release()

        assert second.try_acquire()


@pytest.mark.requirement("P1")
def test_a_killed_holder_leaves_the_lock_free(tmp_path: Path) -> None:
    """kill -9 must not leave a directory that no daemon can serve."""
    path = str(tmp_path / "lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        lock = FileLock(path)
        assert not lock.try_acquire()

        holder.kill()
        holder.wait()

        assert lock.try_acquire()
        lock.release()


@pytest.mark.requirement("C04")
def test_a_lock_file_that_was_replaced_is_not_ours_any_more(tmp_path: Path) -> None:
    """A lock on a file that nobody can find protects nothing."""
    path = tmp_path / "lock"
    with FileLock(str(path)) as lock:
        assert lock.try_acquire()
        lock.note("pid=1\n")
        assert path.read_text() == "pid=1\n"
        assert lock.is_current

        path.unlink()
        assert not lock.is_current

        path.write_text("")
        assert not lock.is_current


def test_a_lock_file_is_private_and_no_link_is_followed(tmp_path: Path) -> None:
    """Others must not be able to hold our lock, nor make us open a file of their choice."""
    with FileLock(str(tmp_path / "lock")) as lock:
        lock.try_acquire()
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600

    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        FileLock(str(tmp_path / "link")).try_acquire()
