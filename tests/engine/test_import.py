"""Taking a handle over from another store: name, version, times, history, and nothing that does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from mcpstated.daemon.testing import ManualTime, RunningEngine, open_engine
from mcpstated.protocol.errors import HandleExists, InvalidInput, QuotaExceeded, StaleWrite
from mcpstated.protocol.handle_record import HandleRecord, record_from_json, record_to_json
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append, SetKey
from mcpstated.protocol.store import Caller, CallToken

NOW = ManualTime().wall


def a_line(**changed: object) -> dict[str, Any]:
    """Return a handle as an export has it, at version 7, with the last three changes."""
    return {
        "user": "somebody",
        "space": "agent",
        "handle": "research_k3v9x2mq",
        "kind": "research",
        "title": "Heat pumps",
        "version": 7,
        "created_at": NOW - 5_000,
        "updated_at": NOW - 1_000,
        "expires_at": None,
        "ttl_days": None,
        "last_writer": "laptop/claude-code",
        "state": {"l": [1, 2], "n": 12345678901234567890123},
        "history": {
            "checkpoints": [
                {
                    "version": 4,
                    "title": None,
                    "expires_at": None,
                    "ttl_days": None,
                    "writer": "desk/cursor",
                    "at": NOW - 4_000,
                    "state": {"l": [], "n": 12345678901234567890123},
                },
            ],
            "changes": [
                a_change(5, {"ops": [{"op": "append", "path": "l", "value": 1}]}),
                a_change(6, {"title": "Heat pumps"}),
                a_change(7, {"ops": [{"op": "append", "path": "l", "value": 2}]}),
            ],
        },
        **changed,
    }


def a_change(version: int, record: dict[str, Any]) -> dict[str, Any]:
    """Return one entry of a history."""
    return {
        "version": version,
        "action": "patch",
        "writer": "w",
        "at": NOW - 3_000 + version,
        "record": record,
    }


def a_record(**changed: object) -> HandleRecord:
    """Return the record of `a_line`."""
    return record_from_json(a_line(**changed), limits=Limits())


async def check_whole(running: RunningEngine, caller: Caller) -> None:
    """Check that the handle of `a_line` is there with everything."""
    store = running.store
    found = await store.load(caller, "research_k3v9x2mq")
    assert found.document == {"l": [1, 2], "n": 12345678901234567890123}
    info = found.info
    assert (info.version, info.title, info.last_writer) == (7, "Heat pumps", "w")
    assert (info.created_at, info.updated_at) == (NOW - 5_000, NOW - 2_993)
    assert (await store.load(caller, info.handle, version=5)).document["l"] == [1]
    assert (await store.load(caller, info.handle, version=4)).info.last_writer == "desk/cursor"
    assert (await store.list(caller)).total == 1


@pytest.mark.requirement("P1", "P3")
async def test_an_imported_handle_is_there_with_its_history(path: Path, alice: Caller) -> None:
    """After a restart too, and it goes on from its version."""
    async with open_engine(path) as running:
        await running.store.adopt(alice, a_record())
        await check_whole(running, alice)
    async with open_engine(path) as running:
        await check_whole(running, alice)
        store = running.store
        handle = "research_k3v9x2mq"
        with pytest.raises(StaleWrite):
            await store.save(alice, handle, document={}, expect_version=6)
        assert (await store.patch(alice, handle, [Append("l", 3)])).info.version == 8
        minted = (await store.mint(alice, kind="a", document={})).info
        assert minted.revision == 5
    db = apsw.Connection(str(path))
    assert db.execute(
        "SELECT version, revision FROM changes WHERE handle_id = 1 ORDER BY revision"
    ).fetchall() == [
        (5, 1),
        (6, 2),
        (7, 3),
        (8, 4),
    ]
    assert db.execute("PRAGMA integrity_check").get == "ok"
    db.close()


async def test_a_handle_without_history_begins_with_its_version(path: Path, alice: Caller) -> None:
    """What was before is not known here, and asking for it says so."""
    line = a_line(ttl_days=3, expires_at=NOW + 1_000)
    del line["history"]
    async with open_engine(path) as running:
        receipt = await running.store.adopt(alice, record_from_json(line, limits=Limits()))
        assert receipt.info.version == 7
    async with open_engine(path) as running:
        found = await running.store.load(alice, "research_k3v9x2mq")
        assert found.document == line["state"]
        assert found.info.expires_at == NOW + 1_000
        assert found.info.last_writer == "laptop/claude-code"
        assert (await running.store.patch(alice, "research_k3v9x2mq", [SetKey("", "x", 1)])).info.version == 8


async def test_a_handle_that_is_there_is_never_overwritten(path: Path, alice: Caller) -> None:
    """Live or in the trash; once it is gone for good the name is free."""
    async with open_engine(path) as running:
        store = running.store
        await store.adopt(alice, a_record())
        with pytest.raises(HandleExists):
            await store.adopt(alice, a_record())
        await store.delete(alice, "research_k3v9x2mq")
        with pytest.raises(HandleExists):
            await store.adopt(alice, a_record())
        await store.empty_trash(alice)
        assert (await store.adopt(alice, a_record())).info.version == 7


async def test_a_name_is_free_at_once_where_there_is_no_trash(path: Path, alice: Caller) -> None:
    """The row of a deleted handle may not have been swept yet."""
    async with open_engine(path, limits=Limits(trash_days=0)) as running:
        await running.store.adopt(alice, a_record())
        await running.store.delete(alice, "research_k3v9x2mq")
        assert (await running.store.adopt(alice, a_record())).info.version == 7


@pytest.mark.requirement("P6")
async def test_imports_count_as_handles(path: Path, alice: Caller) -> None:
    """The quota holds for them, and those that fill it are counted after a restart."""
    limits = Limits(max_handles_per_user=1)
    async with open_engine(path, limits=limits) as running:
        await running.store.adopt(alice, a_record())
        with pytest.raises(QuotaExceeded):
            await running.store.adopt(alice, a_record(handle="research_other"))
    async with open_engine(path, limits=limits) as running:
        with pytest.raises(QuotaExceeded):
            await running.store.mint(alice, kind="a", document={})


async def test_what_does_not_fit_together_is_refused(path: Path, alice: Caller) -> None:
    """A history that leads elsewhere, an expired handle; nothing of it is stored."""
    async with open_engine(path) as running:
        store = running.store
        broken = a_line()["history"]
        broken["changes"][1]["record"] = {"ops": [{"op": "append", "path": "nowhere", "value": 1}]}
        for record in (a_record(state={"l": [2, 1]}), a_record(history=broken)):
            with pytest.raises(InvalidInput) as refused:
                await store.adopt(alice, record)
            assert refused.value.details["field"] == "history"
        with pytest.raises(InvalidInput) as refused:
            await store.adopt(alice, a_record(expires_at=NOW - 1))
        assert refused.value.details["field"] == "expires_at"
        assert (await store.list(alice)).total == 0


@pytest.mark.requirement("C21")
async def test_times_to_come_do_not_set_the_clock_ahead(path: Path, alice: Caller) -> None:
    """Another machine's clock may be ahead; here nothing may expire because of that."""
    async with open_engine(path) as running:
        later = a_record(updated_at=NOW + 1e6)
        later = replace(later, changes=tuple(replace(change, at=NOW + 1e6) for change in later.changes))
        await running.store.adopt(alice, later)
        await running.store.mint(alice, kind="a", document={}, ttl_days=1)
    async with open_engine(path) as running:
        assert (await running.store.load(alice, "research_k3v9x2mq")).info.updated_at == NOW
        assert (await running.store.list(alice)).total == 2


@pytest.mark.requirement("P2")
async def test_an_import_that_is_resent_gets_its_first_answer(path: Path, alice: Caller) -> None:
    """Not "it is there already"."""
    async with open_engine(path) as running:
        first = await running.store.adopt(replace(alice, token=CallToken(b"s" * 16, 1)), a_record())
        again = replace(alice, token=CallToken(b"s" * 16, 1, is_resent=True))
        assert (await running.store.adopt(again, a_record())).info == first.info


async def test_a_line_comes_back_as_it_was() -> None:
    """What is read is what was written."""
    assert record_to_json(a_record()) == a_line()


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"version": 0}, "version"),
        ({"version": 8}, "history.changes"),
        ({"space": "other"}, "space"),
        ({"user": ""}, "user"),
        ({"handle": "a\nb"}, "handle"),
        ({"kind": "A"}, "kind"),
        ({"created_at": "now"}, "created_at"),
        ({"updated_at": float("nan")}, "updated_at"),
        ({"updated_at": 10**400}, "updated_at"),
        ({"updated_at": -1}, "updated_at"),
        ({"expires_at": True}, "expires_at"),
        ({"ttl_days": 0}, "ttl_days"),
        ({"last_writer": None}, "writer"),
        ({"state": []}, "state"),
        ({"history": []}, "history"),
        ({"history": {"checkpoints": [], "changes": []}}, "history.checkpoints"),
        ({"history": {"checkpoints": [], "changes": 1}}, "history.changes"),
    ],
)
def test_a_line_out_of_range_is_refused_by_field(changed: dict[str, object], field: str) -> None:
    """The one who made the file must find the place."""
    with pytest.raises(InvalidInput) as refused:
        a_record(**changed)
    assert refused.value.details["field"] == field
