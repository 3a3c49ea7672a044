"""Stores of schemas that were released, as the programs of their time left them.

`tests/engine/schemas/` holds each as SQL, with what its program answered about it; both come from
`tests/long/record_schema.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from mcpstated.daemon.testing import ManualTime, open_engine
from mcpstated.protocol.documents import dump
from mcpstated.protocol.errors import HandleExpired, HandleNotFound
from mcpstated.protocol.patches import Append, SetKey
from mcpstated.protocol.store import Caller, CallToken
from support.layout import ROOT

SCHEMAS = ROOT / "tests" / "engine" / "schemas"
ORIGIN = b"recorded-shim-01"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded store."""

    version: int
    answers: dict[str, Any]

    def make(self, path: Path) -> None:
        """Make the store again, in a file of its own."""
        path.parent.mkdir(parents=True, exist_ok=True)
        db = apsw.Connection(str(path))
        try:
            db.execute((SCHEMAS / f"v{self.version}.sql").read_text("utf-8"))
            db.pragma("journal_mode", "WAL")
        finally:
            db.close()


def recorded(version: int) -> Recorded:
    """Return the store that was recorded of a schema."""
    return Recorded(version, json.loads((SCHEMAS / f"v{version}.json").read_text("utf-8")))


def rows_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every table, but for what each start of a daemon notes anew."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {}
        for table in sorted(tables):
            cursor = db.execute(f"SELECT * FROM {table}")  # noqa: S608 - a name from the schema
            rows = [dict(zip([c[0] for c in cursor.getdescription()], row, strict=True)) for row in cursor]
            found[table] = [row for row in rows if table != "meta"]
    finally:
        db.close()
    return found


def schema_of(path: Path) -> tuple[int, list[tuple[Any, ...]]]:
    """Return the version of a store's schema, and its tables and indexes."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        assert db.pragma("integrity_check") == "ok"
        return db.pragma("user_version"), db.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
        ).fetchall()
    finally:
        db.close()


async def expect_same_answers(path: Path, store_of: Recorded) -> None:
    """Open the store with the program of today, which must answer as the one that was recorded did."""
    answers = store_of.answers
    time = ManualTime(wall=answers["recorded_at"])
    async with open_engine(path, time=time) as running:
        store = running.store
        assert (await store.status()).revision == answers["revision"]
        for known in answers["handles"]:
            caller = Caller(known["user"], "w", space=known["space"])
            for version, document in known["versions"].items():
                assert (
                    dump((await store.load(caller, known["handle"], version=int(version))).document)
                    == document
                )
            newest = (await store.load(caller, known["handle"])).info
            assert {name: getattr(newest, name) for name in known if hasattr(newest, name)} == {
                name: value for name, value in known.items() if hasattr(newest, name)
            }
        for gone in answers["deleted"]:
            with pytest.raises(HandleNotFound):
                await store.load(Caller(gone["user"], "w"), gone["handle"])
        for past in answers["expired"]:
            with pytest.raises(HandleExpired):
                await store.load(Caller(past["user"], "w"), past["handle"])
        for call in answers["calls"]:
            token = CallToken(ORIGIN, call["sequence"], is_resent=True)
            caller = Caller("alice", "laptop/other", token=token)
            number = call["sequence"] - 1
            receipt = await store.patch(
                caller, call["handle"], [Append("l", number), SetKey("", f"k{number}", number)]
            )
            assert receipt.info.version == call["version"], "a call that comes again is answered as it was"
        assert (await store.status()).revision == answers["revision"], "and not applied again"


async def expect_dense_growth(path: Path, store_of: Recorded) -> None:
    """Write once to each handle: versions and the store's revision go on by one."""
    answers = store_of.answers
    revision = answers["revision"]
    async with open_engine(path, time=ManualTime(wall=answers["recorded_at"])) as running:
        for known in answers["handles"]:
            caller = Caller(known["user"], "w", space=known["space"])
            info = (await running.store.patch(caller, known["handle"], [SetKey("", "new", 1)])).info
            revision += 1
            assert (info.version, info.revision) == (known["version"] + 1, revision)
