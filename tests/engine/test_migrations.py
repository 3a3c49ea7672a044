"""From every schema that was released to the newest one: all or nothing, once, with the same content."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from mcpstated.daemon.backends import schema
from mcpstated.daemon.failpoints import FAILPOINTS
from support.mcp_client import mcp_client, starting_environment
from support.schemas import (
    SCHEMAS,
    Recorded,
    expect_dense_growth,
    expect_same_answers,
    recorded,
    rows_of,
    schema_of,
)

OLDER = range(1, schema.SCHEMA_VERSION)
MOMENTS = [
    (version, f"{name}@{time}")
    for version in OLDER
    for name in FAILPOINTS
    if name.startswith("migration.")
    for time in (range(1, schema.SCHEMA_VERSION - version + 1) if name.endswith("_step") else (1,))
]
"""Every moment of every migration: the places around a step are reached once for each step."""

OPEN = """
import os, sys, trio
from mcpstated.daemon import failpoints
from mcpstated.daemon.testing import open_engine
failpoints.arm(os.environ.get("MCPSTATED_FAILPOINTS", ""))

async def main():
    async with open_engine(sys.argv[1]):
        print("opened")

trio.run(main)
"""
MIGRATE = """
import sys, time, apsw
from mcpstated.daemon.backends.schema import migrate

def wait(times):
    if times == 0:
        print("waits", flush=True)
    time.sleep(0.005)
    return True

db = apsw.Connection(sys.argv[1])
db.set_busy_handler(wait)
migrate(db)
print(db.pragma("user_version"))
db.close()
"""
"""Says when it has seen the older version and waits for its turn."""
DAEMON = [sys.executable, "-m", "mcpstated.cli", "daemon"]


@pytest.fixture(params=OLDER, ids=lambda version: f"v{version}")
def older(request: pytest.FixtureRequest, path: Path) -> Recorded:
    """A store of an older schema, which lies at `path`."""
    store = recorded(request.param)
    store.make(path)
    return store


@pytest.fixture
def newest(tmp_path: Path) -> tuple[int, list[tuple[Any, ...]]]:
    """The schema of a new store."""
    path = tmp_path / "new.db"
    db = apsw.Connection(str(path))
    schema.create(db)
    db.close()
    return schema_of(path)


def test_every_schema_that_was_released_is_recorded() -> None:
    """A migration that no store of its time has gone through is a guess."""
    assert sorted(file.name for file in SCHEMAS.iterdir()) == sorted(
        f"v{version}.{ending}" for version in OLDER for ending in ("sql", "json")
    )


@pytest.mark.requirement("C27", "P1", "P3")
async def test_a_migrated_store_answers_as_it_did_before(
    path: Path, older: Recorded, newest: tuple[int, list[tuple[Any, ...]]]
) -> None:
    """Documents, old versions, deleted and expired handles and the ledger: nobody may notice the upgrade."""
    before = rows_of(path)
    await expect_same_answers(path, older)
    after = rows_of(path)
    assert schema_of(path) == newest
    for table, rows in before.items():
        assert [
            {name: row[name] for name in old} for old, row in zip(rows, after[table], strict=True)
        ] == rows
    await expect_dense_growth(path, older)


@pytest.mark.once
@pytest.mark.requirement("C27", "P1")
@pytest.mark.parametrize(("version", "moment"), MOMENTS)
async def test_a_kill_during_a_migration_leaves_the_old_or_the_new_schema(
    path: Path, newest: tuple[int, list[tuple[Any, ...]]], version: int, moment: str
) -> None:
    """Whoever starts next finds a store of one schema, whole, and goes on."""
    store = recorded(version)
    store.make(path)
    old = schema_of(path)
    name, _, time = moment.partition("@")
    died = await trio.run_process(
        [sys.executable, "-c", OPEN, str(path)],
        env={**os.environ, "MCPSTATED_FAILPOINTS": f"{name}=kill@{time}"},
        capture_stdout=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    assert died.stdout == b""
    left = schema_of(path)
    assert left == (newest if name == "migration.after_commit" else old)
    await expect_same_answers(path, store)
    assert schema_of(path) == newest
    assert [file.name for file in path.parent.glob("*.new*")] == []


@pytest.mark.once
@pytest.mark.requirement("C27")
def test_twenty_processes_that_find_an_older_store_at_once_migrate_it_once(path: Path) -> None:
    """Each saw the old version; whoever comes second must see what the first has done, and do nothing."""
    recorded(1).make(path)
    db = apsw.Connection(str(path))
    db.execute("BEGIN IMMEDIATE")
    command = [sys.executable, "-c", MIGRATE, str(path)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(20)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
        db.execute("COMMIT")
        ended = [process.communicate(timeout=60) for process in processes]
    finally:
        db.close()
        for process in processes:
            process.kill()
    assert {errors for _, errors in ended} == {""}
    assert {out.splitlines()[-1] for out, _ in ended} == {str(schema.SCHEMA_VERSION)}


@pytest.mark.once
@pytest.mark.requirement("C27")
async def test_twenty_clients_that_start_at_once_on_an_older_store_are_served_by_one_daemon(
    data_dir: Path,
) -> None:
    """The first start after an upgrade is the login, when every client starts its server."""
    store = recorded(1)
    store.make(data_dir / "state.db")
    known = next(known for known in store.answers["handles"] if known["expires_at"] is None)
    environ = {**starting_environment(data_dir), "MCPSTATED_USER": known["user"]}
    found = []

    async def be_a_client() -> None:
        async with mcp_client(data_dir, environ=environ) as client:
            found.append((await client.append(known["handle"], "x"))["version"])

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(be_a_client)
    assert sorted(found) == [*range(known["version"] + 1, known["version"] + 21)]
    log = (data_dir / "daemon.log").read_text("utf-8")
    assert log.count("daemon started") == 1
    assert log.count("schema migrated") == 1


@pytest.mark.requirement("C27")
def test_a_newer_schema_is_refused_and_nothing_is_touched(data_dir: Path) -> None:
    """The sentence names both versions and what to do; not even a log or a copy appears beside the file."""
    path = data_dir / "state.db"
    recorded(1).make(path)
    db = apsw.Connection(str(path))
    db.pragma("user_version", 99)
    db.close()
    before = path.read_bytes()
    done = subprocess.run(
        [*DAEMON, "--data-dir", str(data_dir)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert f"schema version 99 and this program knows versions up to {schema.SCHEMA_VERSION}" in done.stderr
    assert "upgrade this one" in done.stderr
    assert path.read_bytes() == before
    assert [file.name for file in data_dir.glob("state.db*")] == ["state.db"]
