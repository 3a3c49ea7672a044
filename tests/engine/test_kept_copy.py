"""The copy that is kept of a store before its schema is changed."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path

import apsw
import pytest

from mcpstated.daemon import failpoints
from mcpstated.daemon.backends import schema
from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.testing import GatedBackend, open_engine
from support.schemas import expect_same_answers, recorded, rows_of, schema_of
from support.small_disk import SmallDisk

COPY = f"state.db.before-v{schema.SCHEMA_VERSION}"
DAY_SECONDS = 86_400


async def open_and_close(path: Path) -> None:
    """Let a daemon's storage open the store."""
    async with open_engine(path):
        pass


async def refusal(path: Path, vfs: str | None = None) -> str:
    """Return why the store is not opened."""
    backend = GatedBackend(path, vfs=vfs)
    with pytest.raises(StoreRefused) as caught:
        await backend.open()
    return str(caught.value)


def names_in(directory: Path) -> set[str]:
    """Return the files beside a store, but for those that it makes and removes as it is opened and closed."""
    return {file.name for file in directory.iterdir()} - {"state.db-wal", "state.db-shm", "state.db-reserve"}


async def test_the_copy_is_the_store_as_it_was_in_one_private_file(path: Path) -> None:
    """It is the way back: whoever puts it in the store's place and starts the older program goes on."""
    store = recorded(1)
    store.make(path)
    before, old_schema = rows_of(path), schema_of(path)
    old = os.umask(0o077)
    try:
        await open_and_close(path)
    finally:
        os.umask(old)
    copy = path.with_name(COPY)
    assert names_in(path.parent) == {"state.db", COPY}
    assert (rows_of(copy), schema_of(copy)) == (before, old_schema)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert names_in(path.parent) == {"state.db", COPY}
    copy.replace(path)
    await expect_same_answers(path, store)


async def test_what_only_the_log_of_a_crash_holds_is_in_the_copy(path: Path, tmp_path: Path) -> None:
    """A copy of the file alone would lack the newest commits, and nobody would know."""
    recorded(1).make(path)
    db = apsw.Connection(str(path))
    db.execute("INSERT INTO meta (name, value) VALUES ('late', 'commit')")
    crashed = tmp_path / "crashed" / path.name
    crashed.parent.mkdir()
    for file in (path, path.with_name("state.db-wal")):
        shutil.copyfile(file, crashed.with_name(file.name))
    db.close()
    await open_and_close(crashed)
    copy = apsw.Connection(str(crashed.with_name(COPY)))
    assert copy.execute("SELECT value FROM meta WHERE name = 'late'").get == "commit"
    copy.close()


async def test_only_the_newest_copy_is_kept(path: Path) -> None:
    """Each is as large as the store; leftovers of a crash and the copies of older upgrades go."""
    recorded(1).make(path)
    for name in (COPY, f"{COPY}.new", f"{COPY}.new-journal", "state.db.before-v1", "state.db.before-v1.new"):
        path.with_name(name).write_bytes(b"old")
    path.with_name("state.db.before-visit").write_bytes(b"not ours")
    await open_and_close(path)
    assert names_in(path.parent) == {"state.db", COPY, "state.db.before-visit"}
    assert schema_of(path.with_name(COPY))[0] == 1


@pytest.mark.parametrize(("age_days", "is_kept"), [(29, True), (31, False)])
async def test_a_copy_is_kept_for_thirty_days(path: Path, age_days: int, is_kept: bool) -> None:
    """What a person deleted must not stay in it for ever."""
    recorded(1).make(path)
    await open_and_close(path)
    copy = path.with_name(COPY)
    made_at = time.time() - age_days * DAY_SECONDS
    os.utime(copy, (made_at, made_at))
    await open_and_close(path)
    assert copy.exists() == is_kept


async def test_a_new_store_and_one_of_the_newest_schema_have_no_copy(path: Path) -> None:
    """There is nothing to go back to."""
    await open_and_close(path)
    await open_and_close(path)
    assert names_in(path.parent) == {"state.db"}


async def test_without_room_for_the_copy_the_store_is_left_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade that cannot be undone is not done unasked; the sentence says how much is missing."""
    store = recorded(1)
    store.make(path)
    size_bytes, before = path.stat().st_size, path.read_bytes()
    disk = SmallDisk(path.parent, size_bytes=2 * size_bytes - 4_096, monkeypatch=monkeypatch)
    reason = await refusal(path, disk.name)
    assert f"schema version {schema.SCHEMA_VERSION}" in reason
    assert f"{size_bytes:,} bytes" in reason
    assert path.read_bytes() == before
    assert names_in(path.parent) == {"state.db"}
    disk.size_bytes = 2**30
    await expect_same_answers(path, store)


@pytest.mark.parametrize("place", ["before_copy", "after_copy", "before_step", "before_commit"])
async def test_a_migration_that_fails_leaves_the_store_alone_and_no_copy(path: Path, place: str) -> None:
    """The store itself is what it was, so a copy would only take space, of which there may be none."""
    recorded(1).make(path)
    before = rows_of(path), schema_of(path)
    failpoints.arm(f"migration.{place}=error")
    try:
        assert str(path) in await refusal(path)
    finally:
        failpoints.arm("")
    assert (rows_of(path), schema_of(path)) == before
    assert names_in(path.parent) == {"state.db"}
