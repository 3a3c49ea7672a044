"""Backups: consistent under load, verified, whole or not there, rotated; and made by themselves."""

from __future__ import annotations

import errno
import gzip
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.backups import Backups
from mcpstated.daemon.failpoints import FAILPOINTS
from mcpstated.daemon.maintenance import daily
from mcpstated.daemon.maintenance.backup import back_up, copy_store
from mcpstated.daemon.maintenance.daily import back_up_and_rotate
from mcpstated.daemon.maintenance.files import unpack
from mcpstated.daemon.maintenance.rotation import (
    KeptBackup,
    backup_name,
    excess,
    is_due,
    kept_backups,
    newest_of,
)
from mcpstated.daemon.maintenance.verify import verify
from mcpstated.daemon.testing import open_engine
from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller

ALICE = Caller("alice", "w")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store" / "state.db"


async def a_store(path: Path, handles: int = 3) -> None:
    """Make a store with some handles, each patched once."""
    async with open_engine(path) as running:
        for number in range(handles):
            handle = (await running.store.mint(ALICE, kind="a", document={"n": number, "l": []})).info.handle
            await running.store.patch(ALICE, handle, [Append("l", number)])


@pytest.mark.requirement("P1", "C09")
async def test_a_backup_under_writing_load_is_one_moment_of_the_store(path: Path, tmp_path: Path) -> None:
    """Every acknowledged write from before it is there, and each log leads to its head."""
    target = tmp_path / "backup.db.gz"
    async with open_engine(path) as running:
        store = running.store
        handle = (await store.mint(ALICE, kind="a", document={"l": []})).info.handle
        acknowledged = 0

        async def write() -> None:
            nonlocal acknowledged
            while True:
                acknowledged = (await store.patch(ALICE, handle, [Append("l", acknowledged)])).info.version

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            for _ in range(3):
                before = acknowledged
                done = await trio.run_process(
                    [
                        sys.executable,
                        "-m",
                        "mcpstated.daemon.maintenance.daily",
                        path,
                        tmp_path,
                        "7",
                        "1000000",
                    ],
                    capture_stdout=True,
                )
                assert "path" in json.loads(done.stdout)
                (newest, *_) = kept_backups(tmp_path)
                verdict = verify(newest.path)
                assert verdict.is_sound
                assert verdict.revision >= before
            nursery.cancel_scope.cancel()
        assert (await store.load(ALICE, handle)).info.version >= acknowledged
    unpack(newest.path, target.with_suffix(""))
    async with open_engine(target.with_suffix("")) as restored:
        found = await restored.store.load(ALICE, handle)
        assert len(found.document["l"]) == found.info.version - 1  # type: ignore[arg-type]


def test_names_say_when_and_of_what(tmp_path: Path) -> None:
    """They are all that the rotation goes by, and what is not so named is never touched."""
    ours = [tmp_path / backup_name(1.7e9 + 100 * n, n) for n in range(4)]
    for path in (*ours, tmp_path / "state-holiday.db.gz", tmp_path / "state.db"):
        path.write_bytes(b"x" * 10)
    backups = kept_backups(tmp_path)
    assert [kept.path for kept in backups] == ours[::-1]
    assert [kept.at for kept in backups] == [1.7e9 + 300, 1.7e9 + 200, 1.7e9 + 100, 1.7e9]
    assert [kept.revision for kept in excess(backups, now=1.8e9, keep_files=3, keep_bytes=1_000)] == [0]
    assert [kept.revision for kept in excess(backups, now=1.8e9, keep_files=9, keep_bytes=25)] == [1, 0]
    assert [kept.revision for kept in excess(backups, now=1.8e9, keep_files=0, keep_bytes=0)] == [2, 1, 0]
    assert kept_backups(tmp_path / "nowhere") == []


def test_a_backup_from_the_future_pushes_no_other_one_out(tmp_path: Path) -> None:
    """The clock was wrong for an hour; that must not cost a week of backups."""
    days = [1.7e9 + 86_400 * day for day in range(7)]
    for number, at in enumerate([*days, 4e9]):
        (tmp_path / backup_name(at, number)).write_bytes(b"x" * 10)
    now = days[-1] + 3600
    backups = kept_backups(tmp_path)
    newest = newest_of(backups, now=now)
    assert newest is not None
    assert newest.at == days[-1]
    assert not is_due(newest, now=now, revision=99, hours=24)
    going = excess(backups, now=now, keep_files=7, keep_bytes=1_000)
    assert [kept.at for kept in going] == [4e9]


def test_a_name_without_a_date_is_nobody_s_backup(tmp_path: Path) -> None:
    """One odd file must not end the daemon, nor `status`."""
    (tmp_path / "state-20269999T000000Z-r1.db.gz").write_bytes(b"x")
    assert kept_backups(tmp_path) == []


@pytest.mark.parametrize(
    ("age_hours", "revision", "due"),
    [(None, 5, True), (None, 0, False), (1, 5, False), (25, 5, True), (25, 4, False)],
    ids=["first", "empty store", "young", "old", "nothing changed"],
)
def test_a_backup_is_due_once_a_day_if_something_changed(
    age_hours: float | None, revision: int, due: bool
) -> None:
    """More would push older ones out."""
    now = 1.7e9
    newest = None if age_hours is None else KeptBackup(Path("x"), now - age_hours * 3600, 4, 10)
    assert is_due(newest, now=now, revision=revision, hours=24) is due


async def test_the_rotation_keeps_what_was_asked_for(path: Path, tmp_path: Path) -> None:
    """And clears away what interrupted backups left; files are 0600, the directory 0700."""
    await a_store(path)
    directory = tmp_path / "backups"
    for day in range(5):
        now = 1.7e9 + day * 86_400
        backup = back_up_and_rotate(path, directory, keep_files=3, keep_bytes=10**9, now=now)
        (directory / f"{backup_name(now, 9)}.part").write_bytes(b"left")
        (directory / f"{backup_name(now, 9)}.copy").write_bytes(b"left")
        (directory / "mine.txt").write_bytes(b"mine")
    assert [kept.at for kept in kept_backups(directory)] == [1.7e9 + day * 86_400 for day in (4, 3, 2)]
    assert stat.S_IMODE(Path(backup.path).stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert sorted(path.suffix for path in directory.iterdir()) == [
        ".copy",
        ".gz",
        ".gz",
        ".gz",
        ".part",
        ".txt",
    ]


async def test_a_file_that_is_there_is_not_written_over(path: Path, tmp_path: Path) -> None:
    """Unless that is what was asked for; a name that ends with .db is not compressed."""
    await a_store(path)
    target = tmp_path / "mine.db"
    target.write_bytes(b"precious")
    with pytest.raises(InvalidInput):
        back_up(path, target)
    assert target.read_bytes() == b"precious"
    back_up(path, target, may_replace=True)
    assert target.read_bytes().startswith(b"SQLite format 3")
    assert sorted(found.name for found in tmp_path.iterdir() if found.is_file()) == ["mine.db"]


async def test_a_damaged_store_is_not_backed_up_over_good_backups(path: Path, tmp_path: Path) -> None:
    """The rotation would carry the damage through all of them within a week."""
    await a_store(path)
    directory = tmp_path / "backups"
    good = back_up_and_rotate(path, directory, keep_files=1, keep_bytes=10**9, now=1.7e9)
    db = apsw.Connection(str(path))
    db.execute("UPDATE handles SET version = 9 WHERE id = 2")
    db.close()
    with pytest.raises(StoreRefused, match="damaged"):
        back_up_and_rotate(path, directory, keep_files=1, keep_bytes=10**9, now=1.7e9 + 90_000)
    assert [str(kept.path) for kept in kept_backups(directory)] == [good.path]


@pytest.mark.once
@pytest.mark.parametrize("failpoint", [name for name in FAILPOINTS if name.startswith("backup.")])
async def test_a_backup_that_dies_leaves_good_ones_only(failpoint: str, path: Path, tmp_path: Path) -> None:
    """Whatever the moment: what has a backup's name is sound, and the next one clears up."""
    await a_store(path)
    directory = tmp_path / "backups"
    back_up_and_rotate(path, directory, keep_files=1, keep_bytes=10**9, now=1.7e9)
    command = [sys.executable, "-m", daily.__name__, path, directory, "1", "1000000000"]
    environ = {**os.environ, "MCPSTATED_FAILPOINTS": f"{failpoint}=kill"}
    died = await trio.run_process(command, env=environ, check=False, capture_stdout=True)
    assert died.returncode == -9
    left = kept_backups(directory)
    assert left
    assert all(verify(kept.path).is_sound for kept in left)
    assert verify(path).is_sound
    back_up_and_rotate(path, directory, keep_files=1, keep_bytes=10**9, now=4e9)
    assert len(list(directory.iterdir())) == 1


@contextmanager
def small_files() -> Iterator[None]:
    """Let this process write no file of more than 8 KiB."""
    import resource
    import signal

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.requirement("C22")
async def test_a_full_disk_leaves_nothing_half(path: Path, tmp_path: Path) -> None:
    """It is told, and the store and the directory are as before."""
    await a_store(path)
    with small_files(), pytest.raises((OSError, StoreRefused)):
        back_up(path, tmp_path / "backup.db.gz")
    assert [found.name for found in tmp_path.iterdir()] == ["store"]
    assert verify(path).is_sound


def test_a_broken_backup_is_told_from_a_good_one(tmp_path: Path) -> None:
    """Cut off, or no gzip file at all behind the first bytes."""
    cut = tmp_path / "cut.db.gz"
    cut.write_bytes(gzip.compress(os.urandom(10_000))[:5_000])
    with pytest.raises(InvalidInput):
        verify(cut)
    noise = tmp_path / "noise.db"
    noise.write_bytes(os.urandom(10_000))
    with pytest.raises(StoreRefused):
        verify(noise)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.db.gz", "noise.db"]


async def test_the_daemon_has_a_backup_made_when_one_is_due(path: Path) -> None:
    """By a child process; once, until a day has passed and something has changed."""
    await a_store(path)
    revision, now = 6, time.time() + 60.0

    async def newest_revision() -> int:
        return revision

    backups = Backups(
        str(path),
        limits=Limits(),
        revision=newest_revision,
        now_unix=lambda: now,
        command=[sys.executable],
    )
    assert (backups.state().files, backups.state().newest_at) == (0, None)
    with trio.fail_after(60):
        await backups.look()
    state = backups.state()
    assert (state.files, state.error) == (1, None)
    assert state.newest_at is not None
    now = state.newest_at + 3600
    await backups.look()
    assert backups.state().files == 1
    now, revision = state.newest_at + 90_000, 7
    path.write_bytes(b"not a store any more")
    with trio.fail_after(60):
        await backups.look()
    assert backups.state().files == 1
    assert "not a database" in str(backups.state().error)


def test_the_job_runs_isolated_from_its_surroundings(path: Path, tmp_path: Path) -> None:
    """As the daemon starts it: no environment, another directory."""
    done = subprocess.run(
        [sys.executable, "-I", "-m", daily.__name__, path, tmp_path / "b", "1", "1"],
        cwd="/",
        env={},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert "error" in json.loads(done.stdout)


async def test_a_disk_without_second_names_takes_a_backup_too(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory stick knows no hard links, and is what backups are carried on."""

    def refuse(*_arguments: object, **_more: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    await a_store(path)
    monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "stick.gz"
    back_up(path, target)
    assert verify(target).is_sound
    with pytest.raises(InvalidInput):
        back_up(path, target)
    assert [found.name for found in tmp_path.glob("stick*")] == ["stick.gz"]


async def test_what_a_backup_makes_is_private_whatever_the_umask(path: Path, tmp_path: Path) -> None:
    """The copy holds everybody's states, also while it is being made."""
    await a_store(path)
    before = os.umask(0)
    try:
        copy_store(path, tmp_path / "copy.db")
        back_up(path, tmp_path / "plain.db")
    finally:
        os.umask(before)
    for name in ("copy.db", "plain.db"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
