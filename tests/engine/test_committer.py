"""Group commit: what is queued becomes one batch, in order, and fails as one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from mcpstated.daemon.backends.interface import NewChange, Outcome
from mcpstated.daemon.testing import GatedBackend, RunningEngine, open_engine
from mcpstated.protocol.errors import (
    BackendError,
    HandleNotFound,
    McpStateError,
    PatchError,
    StaleWrite,
    StorageFull,
)
from mcpstated.protocol.patches import Append, SetKey
from mcpstated.protocol.store import Caller, Receipt


@pytest.mark.requirement("P1", "P4")
async def test_what_comes_while_a_batch_is_flushed_is_one_batch(engine: RunningEngine, alice: Caller) -> None:
    """One flush serves everyone who waits; there is no timer."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    engine.backend.hold()
    engine.backend.batch_sizes.clear()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.patch, alice, handle, [Append("l", 0)])
            await engine.backend.wait_for_batch()
            for index in range(1, 101):
                nursery.start_soon(store.patch, alice, handle, [Append("l", index)])
            await trio.testing.wait_all_tasks_blocked()
            engine.backend.release()
        assert engine.backend.batch_sizes == [1, 100]
        snapshot = await store.load(alice, handle)
    assert snapshot.info.version == 102
    assert sorted(snapshot.document["l"]) == list(range(101))  # type: ignore[arg-type]


@pytest.mark.requirement("P3")
async def test_writes_of_one_task_are_seen_in_their_order(engine: RunningEngine, alice: Caller) -> None:
    """P3: everyone sees the first of two writes first."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle

    async def write(name: str) -> None:
        for index in range(20):
            await store.patch(alice, handle, [Append("l", [name, index])])

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for name in "abcd":
                nursery.start_soon(write, name)
        items = (await store.load(alice, handle)).document["l"]
    assert isinstance(items, list)
    for name in "abcd":
        assert [item[1] for item in items if item[0] == name] == list(range(20))  # type: ignore[index]


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("bound", ["MAX_BATCH_CHANGES", "MAX_BATCH_BYTES"])
async def test_a_batch_is_bounded_and_what_is_left_is_the_next_one(
    engine: RunningEngine, alice: Caller, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """P6: one transaction stays well below the write-ahead log's limit, however many wait."""
    monkeypatch.setattr(f"mcpstated.daemon.committer.{bound}", 5 if bound.endswith("CHANGES") else 500)
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    engine.backend.hold()
    engine.backend.batch_sizes.clear()
    with trio.fail_after(10):
        await gather(
            *[lambda: store.patch(alice, handle, [Append("l", "x" * 100)])] * 21,
            release=engine.backend,
        )
    assert engine.backend.batch_sizes[0] == 1
    assert max(engine.backend.batch_sizes) <= 5
    assert sum(engine.backend.batch_sizes) == 21
    assert (await store.load(alice, handle)).info.version == 22


async def test_a_caller_that_is_cancelled_does_not_take_its_write_back(
    engine: RunningEngine, alice: Caller
) -> None:
    """The interface says so: an evaluated write goes on, and others may have built on it."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    engine.backend.hold()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.patch, alice, handle, [Append("l", "cancelled")])
            await engine.backend.wait_for_batch()
            nursery.cancel_scope.cancel()
        engine.backend.release()
        await store.patch(alice, handle, [Append("l", "next")])
        assert (await store.load(alice, handle)).document == {"l": ["cancelled", "next"]}


async def gather_errors(*calls: object) -> list[object]:
    """Run the calls side by side, started in order, and return what each raised or returned."""
    results: list[object] = [None] * len(calls)

    async def run(index: int, call: object) -> None:
        try:
            results[index] = await call()  # type: ignore[operator]
        except McpStateError as error:
            results[index] = error

    async with trio.open_nursery() as nursery:
        for index, call in enumerate(calls):
            nursery.start_soon(run, index, call)
            await trio.testing.wait_all_tasks_blocked()
    return results


@pytest.mark.requirement("P3")
async def test_a_failed_batch_fails_all_that_built_on_it_and_nothing_else(
    engine: RunningEngine, alice: Caller
) -> None:
    """P3: a tip that is dropped takes everything with it that rested on it, and the next write works."""
    store, backend = engine.store, engine.backend
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    other = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    backend.hold()
    backend.next_failure = BackendError("The storage failed.")
    with trio.fail_after(10):
        results = await gather(
            lambda: store.patch(alice, handle, [Append("l", "in the batch")]),
            lambda: store.patch(alice, handle, [Append("l", "queued behind it")]),
            lambda: store.patch(alice, other, [Append("l", "queued beside it")]),
            lambda: store.save(alice, handle, document={"new": 1}, expect_version=3),
            release=backend,
        )
        failed = [results[0], results[1], results[3]]
        assert [type(result) for result in failed] == [BackendError] * 3
        assert len({id(result) for result in failed}) == 3
        assert (await store.load(alice, other)).document == {"l": ["queued beside it"]}
        assert (await store.load(alice, handle)).info.version == 1
        assert (await store.patch(alice, handle, [Append("l", "after")])).info.version == 2


@pytest.mark.requirement("P3")
async def test_answers_that_change_nothing_wait_for_the_tip_they_rest_on(
    engine: RunningEngine, alice: Caller
) -> None:
    """P3: a conflict, a patch error and a `no change` are true of a durable version."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"n": 0})).info.handle
    engine.backend.hold()
    with trio.fail_after(10):
        first, save, bad, same, gone = await gather(
            lambda: store.patch(alice, handle, [SetKey("", "n", 1)]),
            lambda: store.save(alice, handle, document={"n": 7}, expect_version=1),
            lambda: store.patch(alice, handle, [Append("n", 1)]),
            lambda: store.patch(alice, handle, [SetKey("", "n", 1)]),
            lambda: store.load(alice, "a_zzzzzzzz"),
            release=engine.backend,
        )
    assert isinstance(save, StaleWrite)
    assert save.details["current"]["version"] == 2  # type: ignore[index]
    assert isinstance(bad, PatchError)
    assert isinstance(gone, HandleNotFound)
    assert isinstance(first, Receipt)
    assert isinstance(same, Receipt)
    assert not same.is_changed
    assert same.info == first.info


@pytest.mark.requirement("P3")
async def test_answers_that_rested_on_a_tip_that_vanished_are_found_anew(
    engine: RunningEngine, alice: Caller
) -> None:
    """P3: the save would have been stale against a version that never came to be, so it lands."""
    store, backend = engine.store, engine.backend
    handle = (await store.mint(alice, kind="a", document={"n": 0})).info.handle
    backend.hold()
    backend.next_failure = BackendError("The storage failed.")
    with trio.fail_after(10):
        first, save = await gather(
            lambda: store.patch(alice, handle, [SetKey("", "n", [])]),
            lambda: store.save(alice, handle, document={"n": 7}, expect_version=1),
            release=backend,
        )
    assert isinstance(first, BackendError)
    assert isinstance(save, Receipt)
    assert (await store.load(alice, handle)).document == {"n": 7}


@pytest.mark.requirement("P3")
async def test_a_delete_that_failed_leaves_the_handle_to_those_who_waited(
    engine: RunningEngine, alice: Caller
) -> None:
    """P3: `not found` is an answer too, and this one would have been wrong."""
    store, backend = engine.store, engine.backend
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    backend.hold()
    backend.next_failure = StorageFull("The disk is full.")
    with trio.fail_after(10):
        deleted, patched = await gather(
            lambda: store.delete(alice, handle),
            lambda: store.patch(alice, handle, [Append("l", 1)]),
            release=backend,
        )
    assert isinstance(deleted, StorageFull)
    assert isinstance(patched, Receipt)
    assert patched.info.version == 2


async def test_a_fault_of_ours_in_a_batch_fails_that_batch_only(engine: RunningEngine, alice: Caller) -> None:
    """A line that breaks the storage would come back after a restart for ever, so it must not stop us."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    engine.backend.next_failure = RuntimeError("a bug, with a secret in it")
    with pytest.raises(BackendError) as caught:
        await store.patch(alice, handle, [Append("l", 1)])
    assert "secret" not in str(caught.value)
    assert (await store.patch(alice, handle, [Append("l", 2)])).info.version == 2


async def test_a_handle_that_changed_in_the_storage_is_read_again_and_the_write_lands(
    engine: RunningEngine, path: Path, alice: Caller
) -> None:
    """Compare-and-append: the engine's picture of a handle is only a picture."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    async with open_engine(path) as other:
        await other.store.patch(alice, handle, [Append("l", "from outside")])
    assert (await store.patch(alice, handle, [Append("l", "from here")])).info.version == 3
    assert (await store.load(alice, handle)).document == {"l": ["from outside", "from here"]}


class OneByOneBackend(GatedBackend):
    """A backend with a fault that only batches of several changes meet."""

    async def append(self, changes: Sequence[NewChange], settled: Mapping[bytes, int]) -> Sequence[Outcome]:
        """Store one change, and fail for more."""
        if len(changes) > 1:
            self.next_failure = RuntimeError("too many")
        return await super().append(changes, settled)


@pytest.mark.requirement("P3")
async def test_what_built_on_a_lost_write_is_not_stored_when_a_batch_is_tried_one_by_one(
    path: Path, alice: Caller
) -> None:
    """P3: its version fits what came from outside, but its operations were meant for another document."""
    backend = OneByOneBackend(path)
    async with open_engine(path, backend=backend) as running, open_engine(path) as other:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"n": 0, "l": []})).info.handle
        beside = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        await other.store.patch(alice, handle, [SetKey("", "n", 1), Append("l", "outside")])
        backend.hold()
        with trio.fail_after(10):
            receipts = await gather(
                lambda: store.patch(alice, beside, [Append("l", 1)]),
                lambda: store.patch(alice, handle, [Append("l", "first")]),
                lambda: store.patch(alice, handle, [Append("l", "second")]),
                release=backend,
            )
            document = (await store.load(alice, handle)).document
            for receipt in receipts[1:]:
                assert isinstance(receipt, Receipt)
                version = await store.load(alice, handle, version=receipt.info.version)
                assert version.info == receipt.info  # its size too, which the document below decides
    assert max(backend.batch_sizes) == 2
    assert document["n"] == 1
    assert sorted(document["l"]) == ["first", "outside", "second"]  # type: ignore[arg-type, type-var]
    async with open_engine(path) as reopened:
        assert (await reopened.store.load(alice, handle)).document == document


async def test_a_name_that_is_taken_is_never_given_out_again(
    engine: RunningEngine, path: Path, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names are random; where one is taken in the storage another one is drawn."""
    draws = iter("aaaaaaaaaaaaaaaabbbbbbbb")
    monkeypatch.setattr("mcpstated.daemon.evaluation.secrets.choice", lambda _: next(draws))
    first = await engine.store.mint(alice, kind="k", document={"n": 1})
    async with open_engine(path) as other:
        second = await other.store.mint(alice, kind="k", document={"n": 2})
    assert (first.info.handle, second.info.handle) == ("k_aaaaaaaa", "k_bbbbbbbb")
    assert (await engine.store.load(alice, "k_aaaaaaaa")).document == {"n": 1}


async def test_stopping_gives_up_on_a_storage_that_hangs_and_says_what_is_not_known(
    path: Path, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shielded wait has a bound; the write that hangs is neither stored nor not stored for its caller."""
    monkeypatch.setattr("mcpstated.daemon.engine.FLUSH_SECONDS", 0.1)
    results: list[object] = []
    with trio.fail_after(20):
        async with trio.open_nursery() as callers:
            async with open_engine(path) as running:
                store = running.store
                handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
                other = (await store.mint(alice, kind="a", document={"l": []})).info.handle
                running.backend.hold()
                for name in (handle, handle, other):
                    callers.start_soon(
                        keep, results, lambda name=name: store.patch(alice, name, [Append("l", 1)])
                    )
                    await trio.testing.wait_all_tasks_blocked()
    assert sorted(type(result).__name__ for result in results) == [
        "BackendError",
        "BackendError",
        "OutcomeUnknown",
    ]


async def test_a_call_after_the_end_is_a_clear_error(path: Path, alice: Caller) -> None:
    """Not a hang, and not an error from below."""
    async with open_engine(path) as running:
        handle = (await running.store.mint(alice, kind="a", document={})).info.handle
    for call in (
        lambda: running.store.load(alice, handle),
        lambda: running.store.list(alice),
        running.store.status,
        lambda: running.store.delete(alice, handle),
        lambda: running.store.mint(alice, kind="a", document={}),
    ):
        with pytest.raises(BackendError):
            await call()


async def keep(results: list[object], call: Callable[[], Awaitable[object]]) -> None:
    """Add what the call returns or raises."""
    try:
        results.append(await call())
    except McpStateError as error:
        results.append(error)


async def gather(*calls: Callable[[], Awaitable[object]], release: GatedBackend) -> list[object]:
    """Start the calls one after the other, let the backend go when all wait, and return their outcomes."""
    outcomes: list[list[object]] = []
    async with trio.open_nursery() as nursery:
        for call in calls:
            outcomes.append([])
            nursery.start_soon(keep, outcomes[-1], call)
            await trio.testing.wait_all_tasks_blocked()
        release.release()
    return [outcome for (outcome,) in outcomes]
