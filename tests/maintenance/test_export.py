"""Exports: everything of a moment, and what is imported from them is what was exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from mcpstated.daemon.clock import SECONDS_PER_DAY
from mcpstated.daemon.maintenance.export import export_lines
from mcpstated.daemon.testing import RunningEngine, open_engine
from mcpstated.protocol.errors import BackendError
from mcpstated.protocol.handle_record import record_from_json, record_to_json
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append, DelKey, SetKey
from mcpstated.protocol.store import Caller

ALICE, BOB = Caller("alice", "w"), Caller("bob", "desk/cursor")
ODD = {"z": 1.0, "a": -0.0, "big": 12345678901234567890123, "nul": "\x00\u2028\U0001f600", "": [[], {}, None]}


def exported(path: Path, **options: Any) -> list[dict[str, Any]]:
    """Return the handles of an export, without its first line."""
    header, *lines = (line for _, line in export_lines(path, now=options.pop("now", 1.7e9), **options))
    assert json.loads(header)["format"] == "mcpstated-export"
    return [json.loads(line) for line in lines]


async def a_rich_store(running: RunningEngine) -> None:
    """Fill a store with histories that have checkpoints, titles, expiries, saves and a trip to the trash."""
    store = running.store
    for caller in (ALICE, BOB):
        odd = (await store.mint(caller, kind="odd", document=ODD, title="Odd")).info.handle
        await store.save(caller, odd, document={"w": "x" * 5_000}, expect_version=1, title=None)
        await store.save(caller, odd, document=dict(reversed(ODD.items())), expect_version=2, ttl_days=9)
        log = (await store.mint(caller, kind="log", document={"l": []})).info.handle
        for number in range(30):
            await store.patch(caller, log, [Append("l", "y" * 300), SetKey("", "n", number)])
        await store.patch(caller, log, [DelKey("", "n")])
        await store.touch(caller, log, ttl_days=3)
        await store.delete(caller, log)
        await store.undelete(caller, log)
        gone = (await store.mint(caller, kind="gone", document={})).info.handle
        await store.delete(caller, gone)
        await store.mint(caller, kind="over", document={}, ttl_days=1)
    running.time.pass_seconds(2 * SECONDS_PER_DAY)


@pytest.mark.requirement("P3")
@pytest.mark.parametrize("with_history", [False, True])
async def test_what_is_imported_is_what_was_exported(with_history: bool, tmp_path: Path) -> None:
    """Documents digit for digit and key for key; with their history, every old version too."""
    source, target = tmp_path / "one" / "state.db", tmp_path / "two" / "state.db"
    async with open_engine(source) as running, open_engine(target, time=running.time) as other:
        await a_rich_store(running)
        now = running.time.wall
        lines = exported(source, now=now, with_history=with_history)
        assert [line["kind"] for line in lines] == ["odd", "log", "odd", "log"]
        for line in lines:
            caller = Caller(line["user"], "importer")
            await other.store.adopt(caller, record_from_json(line, limits=Limits()))
            here = await running.store.load(caller, line["handle"])
            there = await other.store.load(caller, line["handle"])
            assert json.dumps(there.document) == json.dumps(here.document)
            for name in ("version", "title", "created_at", "updated_at", "expires_at", "last_writer"):
                assert getattr(there.info, name) == getattr(here.info, name), name
            for version in range(1, here.info.version) if with_history else ():
                old = await running.store.load(caller, line["handle"], version=version)
                same = await other.store.load(caller, line["handle"], version=version)
                assert json.dumps(same.document) == json.dumps(old.document)
        again = exported(target, now=now, with_history=with_history)
        assert again == lines
        assert record_to_json(record_from_json(lines[0], limits=Limits())) == lines[0]


async def test_an_export_can_be_of_a_part(tmp_path: Path) -> None:
    """By user, kind and handle."""
    path = tmp_path / "state.db"
    async with open_engine(path) as running:
        await a_rich_store(running)
        now = running.time.wall
    assert {line["user"] for line in exported(path, now=now, user="bob")} == {"bob"}
    assert {line["kind"] for line in exported(path, now=now, kind="log")} == {"log"}
    wanted = exported(path, now=now)[2]["handle"]
    assert [line["handle"] for line in exported(path, now=now, handles=[wanted, "nothing"])] == [wanted]


async def test_a_damaged_handle_ends_an_export_with_its_name(tmp_path: Path) -> None:
    """An export that silently left something out would be taken for whole."""
    path = tmp_path / "state.db"
    async with open_engine(path) as running:
        handle = (await running.store.mint(ALICE, kind="a", document={"secret": 1})).info.handle
    db = apsw.Connection(str(path))
    db.execute("DELETE FROM checkpoints")
    db.close()
    with pytest.raises(BackendError, match=handle):
        exported(path)
