"""One handle whose stored log does not fit together is an error for that handle, not for the store."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.testing import GatedBackend, ManualTime, open_engine
from mcpstated.protocol.errors import BackendError, HistoryCompacted, StaleWrite
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller

LOST_CHECKPOINTS = """
    DELETE FROM checkpoints WHERE handle_id = (SELECT id FROM handles WHERE handle = ?)"""
LOST_BYTES = """
    UPDATE checkpoints SET document = CAST(x'7bff7d' AS TEXT)
    WHERE handle_id = (SELECT id FROM handles WHERE handle = ?)"""
LONE_SURROGATE = r"""
    UPDATE checkpoints SET document = '{"l":["\ud800"]}'
    WHERE handle_id = (SELECT id FROM handles WHERE handle = ?)"""
LONE_SURROGATE_IN_CHANGES = r"""
    UPDATE changes SET body = '{"ops":[{"op":"append","path":"l","value":"\ud800"}]}'
    WHERE handle_id = (SELECT id FROM handles WHERE handle = ?)"""
BAD_KIND = "UPDATE handles SET kind = CAST(x'ff' AS TEXT) WHERE handle = ?"


@pytest.mark.requirement("P5", "P7")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE changes SET body = '{' WHERE version = 2",
        'UPDATE changes SET body = \'{"ops":[{"op":"append","path":"no","value":1}]}\' WHERE version = 2',
        'UPDATE changes SET body = \'{"ops":[{"op":"explode"}]}\' WHERE version = 2',
        "UPDATE changes SET body = '[]' WHERE version = 2",
        "UPDATE checkpoints SET document = 'secret'",
        "DELETE FROM checkpoints",
        r"""UPDATE checkpoints SET document = '{"secret":"secret \ud800"}'""",
        r"""UPDATE changes SET body = '{"ops":[{"op":"append","path":"secret","value":"\ud800"}]}'""",
        "UPDATE changes SET body = CAST(x'7bff7d' AS TEXT) WHERE version = 2",
        "UPDATE checkpoints SET document = CAST(x'7bff7d' AS TEXT)",
    ],
)
async def test_a_handle_that_cannot_be_rebuilt_stands_alone(
    path: Path, alice: Caller, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P7: clear errors, no content in message or log, and everything else goes on."""
    async with open_engine(path) as running:
        broken = (await running.store.mint(alice, kind="a", document={"secret": ["secret"]})).info.handle
        await running.store.patch(alice, broken, [Append("secret", "secret")])
    db = apsw.Connection(str(path))
    db.execute(statement)
    db.close()
    async with open_engine(path) as running:
        store = running.store
        sound = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        for call in (
            lambda: store.load(alice, broken),
            lambda: store.patch(alice, broken, [Append("secret", 1)]),
            lambda: store.save(alice, broken, document={}, expect_version=2),
        ):
            with pytest.raises(BackendError) as caught:
                await call()
            assert "secret" not in caught.value.message
        assert "secret" not in caplog.text
        assert "stored handle was unreadable" in caplog.text or "storage failed unexpectedly" in caplog.text
        assert (await store.patch(alice, sound, [Append("l", 1)])).info.version == 2
        assert (await store.list(alice)).total == 2
        await store.sweep()


def damage(path: Path, statement: str, handle: str) -> None:
    """Run a statement on one handle."""
    db = apsw.Connection(str(path))
    db.execute(statement, (handle,))
    db.close()


class CountingBackend(GatedBackend):
    """Counts how often the log was tidied."""

    tidied = 0

    async def tidy(self) -> None:
        """Count, and do it."""
        self.tidied += 1
        await super().tidy()


@pytest.mark.requirement("P6", "P7")
@pytest.mark.parametrize("limits", [Limits(history_changes=4), Limits(history_days=1)], ids=["long", "old"])
@pytest.mark.parametrize(
    "statement", [LOST_CHECKPOINTS, LOST_BYTES, LONE_SURROGATE], ids=["lost", "bytes", "surrogate"]
)
async def test_a_damaged_history_stops_no_sweep(
    path: Path, alice: Caller, limits: Limits, statement: str
) -> None:
    """P6: the histories of others are folded and the pass comes to its end, each time."""
    time, backend = ManualTime(), CountingBackend(path, limits=limits)
    async with open_engine(path, limits=limits, time=time, backend=backend) as running:
        store = running.store
        broken = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        sound = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        for handle in (broken, sound):
            for index in range(12):
                await store.patch(alice, handle, [Append("l", index)])
        damage(path, statement, broken)
        time.pass_seconds(3 * 86_400.0)
        with trio.fail_after(10):
            await store.sweep()
            await store.sweep()
        assert backend.tidied == 2
        with pytest.raises(HistoryCompacted):
            await store.load(alice, sound, version=2)
        assert (await store.patch(alice, sound, [Append("l", 12)])).info.version == 14


async def test_a_damaged_row_that_a_sweep_meets_stops_neither_it_nor_the_writes(
    path: Path, alice: Caller
) -> None:
    """P7: expiry runs in the committer's task, which everyone's writes depend on."""
    time, backend = ManualTime(), CountingBackend(path)
    async with open_engine(path, time=time, backend=backend) as running:
        store = running.store
        broken = (await store.mint(alice, kind="a", document={}, ttl_days=1)).info.handle
        sound = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        damage(path, BAD_KIND, broken)
        time.pass_seconds(2 * 86_400.0)
        with trio.fail_after(10):
            await store.sweep()
            assert backend.tidied == 1
            assert (await store.patch(alice, sound, [Append("l", 1)])).info.version == 2


async def test_a_conflict_is_told_though_the_changes_since_cannot_be_read(path: Path, alice: Caller) -> None:
    """The newest state is in memory and sound; only the account of what changed is left out."""
    async with open_engine(path) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        await store.patch(alice, handle, [Append("l", 1)])
        damage(path, LONE_SURROGATE_IN_CHANGES, handle)
        with pytest.raises(StaleWrite) as caught:
            await store.save(alice, handle, document={}, expect_version=1)
    current = caught.value.details["current"]
    assert isinstance(current, dict)
    assert current["state"] == {"l": [1]}
    assert current["changes"][0]["note"] == "cannot be read"
