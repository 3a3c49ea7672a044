"""Cancelled at any of its waits, a call leaves a store that is whole and goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from mcpstated.daemon.backends.sqlite import SQLiteBackend
from mcpstated.daemon.testing import RunningEngine, open_engine
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append, SetKey
from mcpstated.protocol.store import Caller, CallToken, HandleId

MOST_STEPS = 60


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope just before one task's n-th step from now."""

    def __init__(self, task: trio.lowlevel.Task, scope: trio.CancelScope, step: int) -> None:
        self._task, self._scope, self._left = task, scope, step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count the task's steps."""
        if task is self._task:
            if self._left == 0:
                self._scope.cancel()
            self._left -= 1


async def cancelled_at(step: int, call: Callable[[], Awaitable[object]]) -> bool:
    """Run the call in this task and cancel it before its n-th step; True if it ended before that."""
    with trio.CancelScope() as scope:
        instrument = CancelAtStep(trio.lowlevel.current_task(), scope, step)
        trio.lowlevel.add_instrument(instrument)
        try:
            await call()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return not scope.cancelled_caught


def calls(
    running: RunningEngine, alice: Caller, handle: HandleId
) -> dict[str, Callable[[int], Awaitable[object]]]:
    """Return every method as a call that differs with each number."""
    store = running.store

    async def save(number: int) -> None:
        version = (await store.load(alice, handle)).info.version
        await store.save(alice, handle, document={"l": [], "n": number}, expect_version=version)

    async def forwarded(number: int) -> None:
        caller = Caller(alice.user, alice.writer, CallToken(b"s" * 16, number, is_resent=True))
        await store.patch(caller, handle, [SetKey("", "n", -number)])

    return {
        "mint": lambda number: store.mint(alice, kind="a", document={"n": number}),
        "save": save,
        "patch": lambda number: store.patch(alice, handle, [SetKey("", "n", number)]),
        "forwarded patch": forwarded,
        "touch": lambda number: store.touch(alice, handle, ttl_days=number + 1),
        "load": lambda _: store.load(alice, handle),
        "load version": lambda _: store.load(alice, handle, version=1),
        "list": lambda _: store.list(alice),
        "sweep": lambda _: store.sweep(),
        "status": lambda _: store.status(),
    }


@pytest.mark.requirement("P1", "P3")
@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
@pytest.mark.parametrize(
    "method",
    ["mint", "save", "patch", "forwarded patch", "touch", "load", "load version", "list", "sweep", "status"],
)
async def test_a_call_may_be_cancelled_at_every_step(
    path: Path, alice: Caller, method: str, cache_bytes: int
) -> None:
    """P1 and P3: the next write works, versions have no gap, and what is read is what a restart finds."""
    async with open_engine(path, limits=Limits(cache_bytes=cache_bytes)) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document={"l": [], "n": 0})).info.handle
        other = (await store.mint(alice, kind="a", document={"pad": "x" * 1_000})).info.handle
        call = calls(running, alice, handle)[method]
        has_ended = False
        with trio.fail_after(30):
            for step in range(MOST_STEPS):
                await store.load(alice, other)  # where the cache is small, the handle has to be loaded again
                has_ended = await cancelled_at(step, lambda step=step: call(step + 1))  # type: ignore[misc]
                before = (await store.load(alice, handle)).info.version
                await store.patch(alice, handle, [Append("l", step)])
                assert (await store.load(alice, handle)).info.version >= before + 1
                if has_ended:
                    break
        assert has_ended
        await store.drain()
        snapshot = await store.load(alice, handle)
        total = (await store.list(alice)).total
        assert snapshot.document["l"] == list(range(step + 1)) or method == "save"
    async with open_engine(path) as reopened:
        assert (await reopened.store.load(alice, handle)).info == snapshot.info
        assert (await reopened.store.load(alice, handle)).document == snapshot.document
        assert (await reopened.store.list(alice)).total == total
        for version in range(1, snapshot.info.version + 1):
            await reopened.store.load(alice, handle, version=version)


async def test_opening_may_be_cancelled_at_every_step(path: Path, alice: Caller, no_leaks: None) -> None:
    """Whoever starts a daemon may stop it at once: no thread stays and no half made store."""
    with trio.fail_after(30):
        for step in range(MOST_STEPS):
            backend = SQLiteBackend(path, limits=Limits())

            async def open_and_close(backend: SQLiteBackend = backend) -> None:
                await backend.open()
                await backend.aclose()

            if await cancelled_at(step, open_and_close):
                break
            await backend.aclose()
        else:
            raise AssertionError("it never ended")
    assert step > 3
    async with open_engine(path) as running:
        await running.store.mint(alice, kind="a", document={})


@pytest.mark.requirement("P1")
async def test_one_cancelled_reader_does_not_take_the_others_read_along(path: Path, alice: Caller) -> None:
    """One read serves everyone who waits for the same handle."""
    async with open_engine(path) as running:
        handle = (await running.store.mint(alice, kind="a", document={"l": ["x" * 100] * 2_000})).info.handle
    async with open_engine(path) as running:
        versions: list[int] = []

        async def read() -> None:
            versions.append((await running.store.load(alice, handle)).info.version)

        with trio.fail_after(10):
            async with trio.open_nursery() as others:
                async with trio.open_nursery() as first:
                    first.start_soon(read)
                    for _ in range(3):
                        await trio.lowlevel.checkpoint()
                    for _ in range(5):
                        others.start_soon(read)
                    first.cancel_scope.cancel()
        assert versions == [1] * 5


@pytest.mark.requirement("P1")
async def test_a_deadline_of_the_caller_is_a_cancellation_and_nothing_else(
    engine: RunningEngine, alice: Caller
) -> None:
    """apsw would turn a deadline into an error of its own in the worker; a caller must not meet that."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    for microseconds in range(0, 3_000, 100):
        with trio.move_on_after(microseconds / 1e6):
            await store.list(alice)
        with trio.move_on_after(microseconds / 1e6):
            await store.patch(alice, handle, [Append("l", microseconds)])
    await store.drain()
    items = (await store.load(alice, handle)).document["l"]
    assert isinstance(items, list)
    assert items == sorted(set(items))  # type: ignore[type-var]


@pytest.mark.requirement("P1", "P2")
async def test_stopping_at_any_moment_loses_nothing_that_was_acknowledged(path: Path, alice: Caller) -> None:
    """P1: the store is cancelled under 20 writers, again and again; what they were told is there."""
    acknowledged: list[int] = []
    number = 0
    handle: HandleId | None = None
    for moment in range(8):
        async with open_engine(path) as running:
            store = running.store
            if handle is None:
                handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle

            async def write(item: int) -> None:
                await store.patch(alice, handle, [Append("l", item)])  # noqa: B023
                acknowledged.append(item)

            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    number += 1
                    nursery.start_soon(write, number)
                for _ in range(moment * 3):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
    async with open_engine(path) as running:
        snapshot = await running.store.load(alice, handle)
    items = snapshot.document["l"]
    assert isinstance(items, list)
    assert set(acknowledged) <= set(items)  # type: ignore[arg-type]
    assert len(items) == len(set(items)) == snapshot.info.version - 1  # type: ignore[arg-type]
