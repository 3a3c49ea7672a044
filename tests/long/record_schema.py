"""Record a small store as an earlier revision makes it, for the tests that migrate it.

    python tests/long/record_schema.py REVISION tests/engine/schemas/v1

Writes v1.sql, from which the store can be made again, and v1.json with what that revision answered about it.
Run it once for each schema that was released, before the next one.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

INSIDE = "--inside"
ORIGIN = b"recorded-shim-01"


async def play(path: Path) -> dict[str, Any]:
    """Fill a store with one of everything, and return what it answers."""
    from mcpstated.daemon.testing import ManualTime, open_engine
    from mcpstated.protocol.documents import dump
    from mcpstated.protocol.limits import Limits
    from mcpstated.protocol.patches import Append, SetKey
    from mcpstated.protocol.store import Caller, CallToken

    time = ManualTime()
    alice, bob = Caller("alice", "laptop/claude-code"), Caller("bob", "desk/cursor")
    app = Caller("alice", "a program", space="app")
    answers: dict[str, Any] = {"handles": [], "deleted": [], "calls": []}
    async with open_engine(path, time=time, limits=Limits(history_changes=8)) as running:
        store = running.store
        plain: dict[str, Any] = {
            "l": [],
            "n": [1, 1.0, -0.0, 10**30, 1e-7],
            "text": "Zoë 猫 \u2028",
            "deep": [[{"a": None}]],
        }
        kept = (await store.mint(alice, kind="notes", document=plain, title="Nötes")).info.handle
        folded = (await store.mint(alice, kind="log", document={"l": ["x" * 60]})).info.handle
        others = (await store.mint(bob, kind="notes", document={"of": "bob"})).info.handle
        programs = (await store.mint(app, kind="cache", document={"of": "a program"})).info.handle
        brief = (await store.mint(alice, kind="brief", document={"l": [1]}, ttl_days=30)).info.handle
        for number in range(20):
            time.pass_seconds(1)
            await store.patch(alice, folded, [Append("l", number)])
        await store.sweep()
        await store.touch(alice, brief, ttl_days=60)
        for number in range(3):
            time.pass_seconds(1)
            writer = Caller("alice", "laptop/other", token=CallToken(ORIGIN, number + 1))
            receipt = await store.patch(writer, kept, [Append("l", number), SetKey("", f"k{number}", number)])
            answers["calls"].append({"sequence": number + 1, "handle": kept, "version": receipt.info.version})
        await store.save(alice, kept, document={**plain, "l": [7]}, expect_version=4, ttl_days=400)
        for owner in (alice, bob):
            gone = (await store.mint(owner, kind="gone", document={"was": owner.user})).info.handle
            await store.delete(owner, gone)
            answers["deleted"].append({"user": owner.user, "handle": gone})
        past = (await store.mint(bob, kind="past", document={}, ttl_days=0.001)).info.handle
        answers["expired"] = [{"user": "bob", "handle": past}]
        time.pass_seconds(1_000)
        for owner, handle in ((alice, kept), (alice, folded), (alice, brief), (bob, others), (app, programs)):
            newest = await store.load(owner, handle)
            versions = {str(newest.info.version): dump(newest.document)}
            for version in range(newest.info.version - 1, max(0, newest.info.version - 6), -1):
                versions[str(version)] = dump((await store.load(owner, handle, version=version)).document)
            answers["handles"].append(
                {
                    "space": owner.space,
                    "user": owner.user,
                    "handle": handle,
                    "title": newest.info.title,
                    "expires_at": newest.info.expires_at,
                    "last_writer": newest.info.last_writer,
                    "revision": newest.info.revision,
                    "version": newest.info.version,
                    "versions": versions,
                }
            )
        answers["revision"] = (await store.status()).revision
    answers["recorded_at"] = time.wall
    return answers


def dump_of(path: Path) -> str:
    """Return the SQL that makes the store again, with the numbers that the file says about itself."""
    db = sqlite3.connect(path)
    try:
        numbers = [
            f"PRAGMA {name}={db.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("application_id", "user_version")
        ]
        return "\n".join([*db.iterdump(), *numbers, ""])
    finally:
        db.close()


def main() -> int:
    """Record, in a process that imports the old revision."""
    if INSIDE in sys.argv:
        json.dump(trio.run(play, Path(sys.argv[-1])), sys.stdout)
        return 0
    from support.old_package import old_package

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("revision", help="the last revision that wrote the schema")
    parser.add_argument("target", type=Path, help="where to write, without the endings")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store" / "state.db"
        environ = {**os.environ, "PYTHONPATH": str(old_package(options.revision, Path(directory)))}
        done = subprocess.run(
            [sys.executable, __file__, INSIDE, str(store)], env=environ, stdout=subprocess.PIPE, check=True
        )
        answers = json.loads(done.stdout)
        answers["recorded_with"] = options.revision
        options.target.with_suffix(".sql").write_text(dump_of(store), "utf-8")
    text = json.dumps(answers, indent=1, ensure_ascii=False)
    options.target.with_suffix(".json").write_text(text + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
