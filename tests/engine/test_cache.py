"""The cache is bounded by the size of its documents and never lets go of a write on its way."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from mcpstated.daemon.backends.interface import Key
from mcpstated.daemon.cache import ENTRY_OVERHEAD_BYTES, Cache, Entry
from mcpstated.daemon.changes import State
from mcpstated.daemon.testing import open_engine
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller, HandleId, HandleInfo, Revision, Version


def entry(name: str, size_bytes: int) -> Entry:
    """Return an entry whose document has that size."""
    info = HandleInfo(
        HandleId(name), "a", None, Version(1), Revision(1), 1.0, 1.0, None, "w", size_bytes, "empty"
    )
    state = State(info, None, {}, 0, 0)
    return Entry(Key("agent", "alice", HandleId(name)), state, oldest_version=1, history_bytes=0)


def names(cache: Cache, *candidates: str) -> set[str]:
    """Return which of these are in the cache, without using them."""
    return {name for name in candidates if cache.peek(Key("agent", "alice", HandleId(name))) is not None}


@pytest.mark.requirement("P6")
def test_the_least_recently_used_goes_first() -> None:
    """P6: the bound is on bytes, with a fixed sum for what an entry costs beside its document."""
    cache = Cache(max_bytes=3 * (ENTRY_OVERHEAD_BYTES + 100))
    for name in "abc":
        cache.add(entry(name, 100))
    cache.get(Key("agent", "alice", HandleId("a")))
    cache.add(entry("d", 100))
    assert names(cache, *"abcd") == {"a", "c", "d"}
    assert cache.size_bytes == 3 * (ENTRY_OVERHEAD_BYTES + 100)
    cache.add(entry("e", 2 * (ENTRY_OVERHEAD_BYTES + 100)))
    assert names(cache, *"abcde") == {"e"}


def test_an_entry_that_was_just_added_stays_even_if_it_is_too_large_alone() -> None:
    """Whoever waited for it has to find it; it goes with the next one."""
    cache = Cache(max_bytes=0)
    cache.add(entry("a", 10_000))
    assert names(cache, "a") == {"a"}
    cache.add(entry("b", 10_000))
    assert names(cache, "a", "b") == {"b"}


def test_dropping_twice_counts_once() -> None:
    """The sum must not drift, or the cache would grow or starve over weeks."""
    cache = Cache(max_bytes=1_000_000)
    first, second = entry("a", 100), entry("b", 200)
    cache.add(first)
    cache.add(second)
    cache.drop(first)
    cache.drop(first)
    cache.resized(first)
    assert cache.size_bytes == ENTRY_OVERHEAD_BYTES + 200
    assert len(cache) == 1
    assert first.is_dropped


@pytest.mark.requirement("P3", "P6")
async def test_a_handle_with_a_write_on_its_way_is_not_let_go(path: Path, alice: Caller) -> None:
    """P3: its tip is nowhere else; what others load meanwhile does not push it out."""
    async with open_engine(path, limits=Limits(cache_bytes=0)) as running:
        store, backend = running.store, running.backend
        busy = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        others = [(await store.mint(alice, kind="a", document={})).info.handle for _ in range(5)]
        await store.load(alice, busy)
        backend.hold()
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.patch, alice, busy, [Append("l", 1)])
                await backend.wait_for_batch()
                for name in others:
                    await store.load(alice, name)
                nursery.start_soon(store.patch, alice, busy, [Append("l", 2)])
                await trio.testing.wait_all_tasks_blocked()
                assert (await store.load(alice, busy)).document == {"l": []}
                backend.release()
        assert (await store.load(alice, busy)).document == {"l": [1, 2]}
        assert (await store.status()).cached_documents == 1


async def test_the_sum_is_right_after_a_life_of_writes(path: Path, alice: Caller) -> None:
    """Grown, shrunk, conflicted and deleted documents are counted by what they are now."""
    async with open_engine(path) as running:
        store = running.store
        sizes = 0
        for number in range(20):
            handle = (await store.mint(alice, kind="a", document={"l": ["x" * 100] * number})).info.handle
            await store.patch(alice, handle, [Append("l", "y" * number)])
            info = (await store.save(alice, handle, document={"n": number}, expect_version=2)).info
            if number % 2:
                await store.delete(alice, handle)
            else:
                sizes += info.size_bytes
        status = await store.status()
        assert status.cached_documents == 10
        assert status.cache_bytes == sizes + 10 * ENTRY_OVERHEAD_BYTES
