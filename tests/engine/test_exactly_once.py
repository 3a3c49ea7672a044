"""The ledger: a forwarded call is applied at most once, however often it comes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import apsw
import pytest
import trio
import trio.testing

from mcpstated.daemon.ledger import KEPT_SECONDS
from mcpstated.daemon.testing import ManualTime, RunningEngine, open_engine
from mcpstated.protocol.errors import BackendError, PatchError, StaleWrite
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller, CallToken, Receipt

SHIM = b"0123456789abcdef"


def call(caller: Caller, sequence: int, *, is_resent: bool = False, origin: bytes = SHIM) -> Caller:
    """Return the caller with the token of one forwarded line."""
    return replace(caller, token=CallToken(origin, sequence, is_resent))


def ledger_rows(path: Path) -> list[tuple[bytes, int]]:
    """Return what is in the ledger, read from outside."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(db.execute("SELECT origin, sequence FROM ledger ORDER BY origin, sequence"))
    finally:
        db.close()


@pytest.mark.requirement("P2")
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_call_that_comes_again_is_answered_from_the_ledger(
    path: Path, alice: Caller, is_restarted: bool
) -> None:
    """P2: every kind of write, with the same answer as the first time, by this daemon or the next."""
    time = ManualTime()
    async with open_engine(path, time=time) as running:
        store = running.store
        minted = await store.mint(call(alice, 1), kind="a", document={"l": []}, title="T", ttl_days=1)
        handle = minted.info.handle
        patched = await store.patch(call(alice, 2), handle, [Append("l", "é")])
        saved = await store.save(call(alice, 3), handle, document={"l": [1]}, expect_version=2)
        touched = await store.touch(call(alice, 4), handle, ttl_days=5)
        gone = (await store.mint(call(alice, 5), kind="a", document={})).info.handle
        deleted = await store.delete(call(alice, 6), gone)
        if not is_restarted:
            await replay_all(running, alice, handle, gone, [minted, patched, saved, touched, deleted])
    if is_restarted:
        async with open_engine(path, time=time) as running:
            await replay_all(running, alice, handle, gone, [minted, patched, saved, touched, deleted])


async def replay_all(
    running: RunningEngine, alice: Caller, handle: str, gone: str, receipts: list[Receipt]
) -> None:
    """Send the five calls again and hold the answers against the first ones."""
    store = running.store
    again = [
        await store.mint(call(alice, 1, is_resent=True), kind="a", document={"l": []}, title="T", ttl_days=1),
        await store.patch(call(alice, 2, is_resent=True), handle, [Append("l", "é")]),
        await store.save(call(alice, 3, is_resent=True), handle, document={"l": [1]}, expect_version=2),
        await store.touch(call(alice, 4, is_resent=True), handle, ttl_days=5),
        await store.delete(call(alice, 6, is_resent=True), gone),
    ]
    assert again == [replace(receipt, is_replayed=True) for receipt in receipts]
    assert (await store.load(alice, handle)).info.version == 4
    assert (await store.list(alice)).total == 1


@pytest.mark.requirement("P2")
async def test_a_call_that_was_never_applied_is_applied_when_it_comes_again(
    engine: RunningEngine, alice: Caller
) -> None:
    """P2: the line may have died with the daemon before it got to the engine."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    receipt = await store.patch(call(alice, 1, is_resent=True), handle, [Append("l", 1)])
    assert not receipt.is_replayed
    again = await store.patch(call(alice, 1, is_resent=True), handle, [Append("l", 1)])
    assert again.is_replayed
    assert (await store.load(alice, handle)).document == {"l": [1]}


@pytest.mark.requirement("P2")
async def test_a_call_that_comes_again_while_it_runs_waits_for_the_first_run(
    engine: RunningEngine, alice: Caller
) -> None:
    """P2: even if the first caller is gone by then."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    engine.backend.hold()
    receipts: list[Receipt] = []

    async def resend() -> None:
        receipts.append(await store.patch(call(alice, 1, is_resent=True), handle, [Append("l", 1)]))

    with trio.fail_after(10):
        async with trio.open_nursery() as first:
            first.start_soon(store.patch, call(alice, 1), handle, [Append("l", 1)])
            await engine.backend.wait_for_batch()
            first.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(resend)
            nursery.start_soon(resend)
            await trio.testing.wait_all_tasks_blocked()
            assert receipts == []
            engine.backend.release()
    assert [receipt.is_replayed for receipt in receipts] == [True, True]
    assert engine.backend.batch_sizes == [1, 1], "the runs that waited queued nothing"
    assert (await store.load(alice, handle)).document == {"l": [1]}


@pytest.mark.requirement("P2")
async def test_a_token_is_applied_once_even_if_nobody_says_that_it_comes_again(
    engine: RunningEngine, alice: Caller
) -> None:
    """P2: the transaction itself looks; the flag only saves a read. What built on the second run goes on."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    first = await store.patch(call(alice, 1), handle, [Append("l", "once")])
    engine.backend.hold()
    outcomes: list[Receipt] = []

    async def patch(caller: Caller, value: str) -> None:
        outcomes.append(await store.patch(caller, handle, [Append("l", value)]))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(patch, call(alice, 1), "once")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(patch, alice, "more")
            await trio.testing.wait_all_tasks_blocked()
            engine.backend.release()
    assert replace(first, is_replayed=True) in outcomes
    assert (await store.load(alice, handle)).document == {"l": ["once", "more"]}
    assert (await store.load(alice, handle)).info.version == 3


@pytest.mark.requirement("P2")
async def test_a_call_that_failed_may_be_tried_again_with_its_token(
    engine: RunningEngine, alice: Caller
) -> None:
    """P2: at most once means that what was not applied leaves no trace."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    with pytest.raises(PatchError):
        await store.patch(call(alice, 1), handle, [Append("nope", 1)])
    with pytest.raises(StaleWrite):
        await store.save(call(alice, 2), handle, document={}, expect_version=9)
    engine.backend.next_failure = BackendError("The storage failed.")
    with pytest.raises(BackendError):
        await store.patch(call(alice, 3), handle, [Append("l", 1)])
    for sequence in (1, 2, 3):
        receipt = await store.patch(call(alice, sequence, is_resent=True), handle, [Append("l", sequence)])
        assert not receipt.is_replayed
    assert (await store.load(alice, handle)).document == {"l": [1, 2, 3]}


@pytest.mark.requirement("P2")
async def test_shims_do_not_answer_for_each_other(engine: RunningEngine, alice: Caller) -> None:
    """The numbers start anew in every shim."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    await store.patch(call(alice, 1), handle, [Append("l", 1)])
    other = await store.patch(call(alice, 1, is_resent=True, origin=b"f" * 16), handle, [Append("l", 2)])
    assert not other.is_replayed
    assert (await store.load(alice, handle)).document == {"l": [1, 2]}


@pytest.mark.requirement("P6")
async def test_settled_rows_go_with_the_next_write_of_their_shim(
    path: Path, engine: RunningEngine, alice: Caller
) -> None:
    """P6: the ledger holds what is unsettled, not a day of writes."""
    store = engine.store
    handle = (await store.mint(call(alice, 1), kind="a", document={"l": []})).info.handle
    for sequence in range(2, 12):
        await store.patch(call(alice, sequence), handle, [Append("l", sequence)])
        store.note_settled(SHIM, sequence)
    assert ledger_rows(path) == [(SHIM, 10), (SHIM, 11)]
    assert (await store.patch(call(alice, 11, is_resent=True), handle, [Append("l", 0)])).is_replayed


@pytest.mark.requirement("P6")
async def test_the_sweeper_removes_settled_rows_and_those_of_yesterday(
    path: Path, engine: RunningEngine, alice: Caller
) -> None:
    """P6: a shim that went away without a word leaves nothing for ever."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    for sequence in (1, 2):
        await store.patch(call(alice, sequence), handle, [Append("l", sequence)])
        await store.patch(call(alice, sequence, origin=b"e" * 16), handle, [Append("l", sequence)])
    store.note_settled(SHIM, 2)
    await store.sweep()
    assert ledger_rows(path) == [(SHIM, 2), (b"e" * 16, 1), (b"e" * 16, 2)]
    engine.time.pass_seconds(KEPT_SECONDS - 1)
    await store.patch(call(alice, 3, origin=b"e" * 16), handle, [Append("l", 3)])
    engine.time.pass_seconds(3_600)
    await store.sweep()
    assert ledger_rows(path) == [(b"e" * 16, 3)]


@pytest.mark.requirement("P2", "P5")
async def test_a_token_says_nothing_about_another_users_calls(
    engine: RunningEngine, alice: Caller, bob: Caller
) -> None:
    """P5: whoever learns a shim's id must not be answered with what its user did."""
    store = engine.store
    minted = await store.mint(call(alice, 1), kind="a", document={"l": []}, title="secret")
    for is_resent in (True, False):
        for other in (bob, Caller("alice", "w", space="app")):
            receipt = await store.mint(
                call(other, 1, is_resent=is_resent, origin=SHIM), kind="a", document={}, title="own"
            )
            assert receipt.info.title == "own"
            assert receipt.info.handle != minted.info.handle
    again = await store.mint(call(alice, 1, is_resent=True), kind="a", document={"l": []}, title="secret")
    assert again.info == minted.info
