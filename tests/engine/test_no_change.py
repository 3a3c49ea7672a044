"""A write that changes nothing is no change."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpstated.daemon.testing import RunningEngine
from mcpstated.protocol.errors import StaleWrite
from mcpstated.protocol.patches import DelKey, Merge, SetKey
from mcpstated.protocol.store import Caller


@pytest.mark.requirement("C34")
async def test_nothing_moves_and_the_first_writer_can_still_save(
    either: RunningEngine, alice: Caller
) -> None:
    """C34: version, writer, expiry and time of change stay, so the save that expects them lands."""
    store = either.store
    other = Caller("alice", "desk/cursor")
    minted = (await store.mint(alice, kind="a", document={"n": 1, "d": {"x": 1}}, ttl_days=1)).info
    either.time.pass_seconds(60)
    for operations in (
        [],
        [SetKey("", "n", 1)],
        [DelKey("", "absent")],
        [Merge({}, path="d")],
        [Merge({"x": 1}, path="d")],
        [SetKey("", "n", 2), SetKey("", "n", 1)],
        [SetKey("", "new", 1), DelKey("", "new")],
    ):
        receipt = await store.patch(other, minted.handle, operations)
        assert not receipt.is_changed
        assert receipt.info == minted
        assert len(receipt.touched) == len(operations)
    assert (
        await store.save(other, minted.handle, document={"n": 1, "d": {"x": 1}}, expect_version=1)
    ).info == minted
    assert (await store.load(alice, minted.handle)).info == minted
    saved = await store.save(alice, minted.handle, document={"n": 2}, expect_version=1)
    assert saved.info.version == 2


async def test_no_change_is_still_refused_for_another_version(engine: RunningEngine, alice: Caller) -> None:
    """A save says what it was based on; whether the content happens to be equal is not looked at first."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"n": 1})).info.handle
    with pytest.raises(StaleWrite):
        await store.save(alice, handle, document={"n": 1}, expect_version=2)


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, 1.0), (1, True), (0.0, -0.0), (None, False), ("1", 1), ({}, []), ("é", "e\u0301")],
)
async def test_values_of_different_types_are_a_change(
    engine: RunningEngine, alice: Caller, before: object, after: object
) -> None:
    """JSON's own equality: what looks equal to Python may not be for the user."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"v": before})).info.handle  # type: ignore[dict-item]
    assert (await store.patch(alice, handle, [SetKey("", "v", after)])).is_changed  # type: ignore[arg-type]
    saved = await store.save(alice, handle, document={"v": before}, expect_version=2)  # type: ignore[dict-item]
    assert saved.is_changed


async def test_a_save_that_only_sets_title_or_time_to_live_is_a_change(
    engine: RunningEngine, alice: Caller
) -> None:
    """The document is not all that a save can change."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"n": 1}, title="T")).info.handle
    assert not (await store.save(alice, handle, document={"n": 1}, expect_version=1, title="T")).is_changed
    titled = await store.save(alice, handle, document={"n": 1}, expect_version=1, title="U")
    assert (titled.info.version, titled.info.title) == (2, "U")
    renewed = await store.save(alice, handle, document={"n": 1}, expect_version=2, ttl_days=1)
    assert (renewed.info.version, renewed.info.expires_at) == (3, engine.time.wall + 86_400)


async def test_touch_is_a_change_unless_it_keeps_for_ever_what_lasts_for_ever(
    engine: RunningEngine, alice: Caller
) -> None:
    """A renewal is something that happened, even if it leads to the same second."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={}, ttl_days=1)).info.handle
    assert (await store.touch(alice, handle, ttl_days=1)).is_changed
    assert (await store.touch(alice, handle, ttl_days=None)).is_changed
    forever = await store.touch(alice, handle, ttl_days=None)
    assert not forever.is_changed
    assert forever.info.version == 3


async def test_no_change_writes_nothing(path: Path, engine: RunningEngine, alice: Caller) -> None:
    """Not a byte: neither a row nor a flush."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"n": 1})).info.handle
    wal = path.with_name(path.name + "-wal")
    before = wal.stat().st_size, wal.stat().st_mtime_ns, len(engine.backend.batch_sizes)
    await store.patch(alice, handle, [SetKey("", "n", 1)])
    await store.save(alice, handle, document={"n": 1}, expect_version=1)
    assert (wal.stat().st_size, wal.stat().st_mtime_ns, len(engine.backend.batch_sizes)) == before
