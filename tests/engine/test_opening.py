"""Opening a store: made whole, or refused with a reason and left as it was."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from mcpstated.daemon.backends import schema
from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.testing import open_engine
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller


async def refusal(path: Path) -> str:
    """Open the store, which must be refused, and return the reason."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a group around it, from the nursery
        async with open_engine(path):
            raise AssertionError("it was opened")
    errors = [caught.value]
    while isinstance(errors[-1], BaseExceptionGroup):
        errors.append(errors[-1].exceptions[0])
    assert isinstance(errors[-1], StoreRefused)
    return str(errors[-1])


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file of a directory."""
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}


async def a_store(path: Path) -> str:
    """Make a store with one handle and return the handle."""
    caller = Caller("alice", "w")
    async with open_engine(path) as running:
        handle = (await running.store.mint(caller, kind="a", document={"l": ["x" * 300] * 300})).info.handle
        for index in range(50):
            await running.store.patch(caller, handle, [Append("l", index)])
    return handle


@pytest.mark.requirement("P5")
async def test_a_new_store_is_private_and_whole(path: Path) -> None:
    """Directory 0700 and files 0600 from creation on, under the umask that the daemon sets."""
    old = os.umask(0o077)
    try:
        async with open_engine(path) as running:
            assert (await running.store.status()).schema_version == schema.SCHEMA_VERSION
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
            names = ("state.db", "state.db-wal", "state.db-shm", "state.db-reserve")
            assert modes == dict.fromkeys(names, 0o600)
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        os.umask(old)
    db = apsw.Connection(str(path))
    assert db.pragma("application_id") == schema.APPLICATION_ID
    assert db.pragma("user_version") == schema.SCHEMA_VERSION
    assert db.pragma("integrity_check") == "ok"
    db.close()


def _other_program(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('x')")
    db.close()


def _newer(path: Path) -> None:
    db = apsw.Connection(str(path))
    schema.create(db)
    db.pragma("user_version", 99)
    db.close()


def _text(path: Path) -> None:
    path.write_text("this is not a database, whatever its name says\n" * 100)


def _empty(path: Path) -> None:
    path.touch()


def _orphaned_log(path: Path) -> None:
    path.with_name(path.name + "-wal").write_bytes(b"x" * 4_128)


@pytest.mark.requirement("C23")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_other_program, ["another program"]),
        (_newer, ["version 99", f"up to {schema.SCHEMA_VERSION}", "upgrade"]),
        (_text, ["not a database"]),
        (_empty, ["empty"]),
        (_orphaned_log, ["missing", "write-ahead log"]),
    ],
)
async def test_a_stranger_in_its_place_is_refused_and_left_as_it_was(
    path: Path, make: Callable[[Path], None], words: list[str]
) -> None:
    """Nothing is overwritten, repaired or recreated as empty, and the reason names the file."""
    path.parent.mkdir()
    make(path)
    before = contents(path.parent)
    reason = await refusal(path)
    assert all(word in reason for word in [*words, str(path)])
    assert contents(path.parent) == before


@pytest.mark.requirement("C23")
async def test_a_directory_in_its_place_is_refused(path: Path) -> None:
    """With the path in the reason."""
    path.mkdir(parents=True)
    assert "not a file" in await refusal(path)
    assert path.is_dir()


@pytest.mark.requirement("C23")
async def test_a_store_of_two_names_is_refused(path: Path, alice: Caller) -> None:
    """Two daemons would keep two logs for one file, and the writes of one would be gone."""
    async with open_engine(path) as running:
        handle = (await running.store.mint(alice, kind="a", document={"n": 1})).info.handle
    other = path.with_name("other.db")
    other.hardlink_to(path)
    assert "2 names" in await refusal(path)
    other.unlink()
    async with open_engine(path) as running:
        assert (await running.store.load(alice, handle)).document == {"n": 1}


async def test_a_file_in_the_directorys_place_is_refused(path: Path) -> None:
    """The data directory itself may be something else."""
    path.parent.write_text("x")
    assert str(path) in await refusal(path)


@pytest.mark.requirement("C23")
@pytest.mark.parametrize("damage", ["truncated", "overwritten", "tail cut"])
async def test_a_damaged_file_is_refused_and_left_as_it_was(path: Path, damage: str) -> None:
    """A store that lost pages must not be served, and not be written either."""
    await a_store(path)
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "tail cut":
        data = data[:-4_096]
    else:
        for offset in range(4_096, len(data), 4_096):
            data[offset : offset + 64] = b"\xff" * 64
    path.write_bytes(data)
    before = contents(path.parent)
    assert "damaged" in await refusal(path)
    assert {name: data for name, data in contents(path.parent).items() if not name.endswith("-shm")} == before


@pytest.mark.requirement("C23")
async def test_a_log_left_by_a_crash_is_recovered(path: Path, tmp_path: Path, alice: Caller) -> None:
    """What is in the -wal was committed, so it counts."""
    copy = tmp_path / "copy" / path.name
    copy.parent.mkdir()
    async with open_engine(path) as running:
        handle = (await running.store.mint(alice, kind="a", document={"l": []})).info.handle
        await running.store.patch(alice, handle, [Append("l", 1)])
        for name, data in contents(path.parent).items():
            if not name.endswith("-shm"):
                (copy.parent / name).write_bytes(data)
    assert copy.with_name("state.db-wal").stat().st_size > 0
    async with open_engine(copy) as running:
        assert (await running.store.load(alice, handle)).document == {"l": [1]}


@pytest.mark.requirement("C23")
async def test_a_database_that_another_program_holds_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is held for good would fail every write later on."""
    monkeypatch.setattr("mcpstated.daemon.backends.opening.BUSY_TIMEOUT_MS", 10)
    await a_store(path)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    try:
        assert "locked by another program" in await refusal(path)
    finally:
        other.close()
    async with open_engine(path) as running:
        assert (await running.store.status()).handles == 1


async def test_a_first_start_that_was_killed_half_way_is_started_again(path: Path, alice: Caller) -> None:
    """The new file gets its name when it is whole; what a crash left of it is thrown away."""
    path.parent.mkdir()
    draft = path.with_name("state.db.new")
    draft.write_bytes(b"half")
    draft.with_name("state.db.new-journal").write_bytes(b"half")
    async with open_engine(path) as running:
        await running.store.mint(alice, kind="a", document={})
        assert not draft.exists()


async def test_an_older_schema_is_migrated_whole_or_not_at_all(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps run in one transaction: a step that fails leaves the old version, with its data."""

    def step(db: apsw.Connection) -> None:
        db.execute("CREATE TABLE extra (x INTEGER) STRICT")

    def broken(db: apsw.Connection) -> None:
        db.execute("INSERT INTO no_such_table VALUES (1)")

    await a_store(path)
    released, version = schema.MIGRATIONS, schema.SCHEMA_VERSION
    for steps in ((step, broken), (step,)):
        monkeypatch.setattr(schema, "MIGRATIONS", (*released, *steps))
        monkeypatch.setattr(schema, "SCHEMA_VERSION", version + len(steps))
        if broken in steps:
            await refusal(path)
            db = apsw.Connection(str(path))
            assert db.pragma("user_version") == version
            assert db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'extra'").get == 0
            db.close()
    async with open_engine(path) as running:
        assert (await running.store.status()).handles == 1
    db = apsw.Connection(str(path))
    assert db.pragma("user_version") == version + 1
    assert db.execute("SELECT count(*) FROM extra").get == 0
    db.close()
