"""The number of handles per user is bounded, exactly, and cheaply known."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from mcpstated.daemon.testing import RunningEngine, open_engine
from mcpstated.protocol.errors import BackendError, QuotaExceeded
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import SetKey
from mcpstated.protocol.store import Caller

THREE = Limits(max_handles_per_user=3)
SECOND = 1 / 86_400


async def fill(running: RunningEngine, caller: Caller, number: int) -> list[str]:
    """Mint that many handles."""
    return [(await running.store.mint(caller, kind="a", document={})).info.handle for _ in range(number)]


@pytest.mark.requirement("P6")
async def test_the_limit_is_exact_and_per_user_and_space(path: Path, alice: Caller, bob: Caller) -> None:
    """P6: one user's handles take no place of another's, nor those of programs of those of tools."""
    async with open_engine(path, limits=THREE) as running:
        names = await fill(running, alice, 3)
        with pytest.raises(QuotaExceeded) as caught:
            await running.store.mint(alice, kind="a", document={})
        assert caught.value.details == {"held": 3, "limit": 3}
        await fill(running, bob, 3)
        await fill(running, Caller("alice", "w", space="app"), 3)
        await running.store.patch(alice, names[0], [SetKey("", "n", 1)])
        assert (await running.store.list(alice)).total == 3


@pytest.mark.requirement("P6")
async def test_a_deleted_and_an_expired_handle_give_their_place_back(path: Path, alice: Caller) -> None:
    """P6: an expired one at once, although the sweeper has not been there yet."""
    async with open_engine(path, limits=THREE) as running:
        store = running.store
        names = await fill(running, alice, 3)
        await store.delete(alice, names[0])
        await store.mint(alice, kind="a", document={}, ttl_days=SECOND)
        with pytest.raises(QuotaExceeded):
            await store.mint(alice, kind="a", document={})
        running.time.pass_seconds(2)
        await fill(running, alice, 1)
        with pytest.raises(QuotaExceeded):
            await store.mint(alice, kind="a", document={})


@pytest.mark.requirement("P6")
async def test_the_count_survives_a_restart(path: Path, alice: Caller) -> None:
    """P6: it is counted in the database, deleted ones left out."""
    async with open_engine(path, limits=THREE) as running:
        names = await fill(running, alice, 3)
        await running.store.delete(alice, names[0])
    async with open_engine(path, limits=THREE) as running:
        await fill(running, alice, 1)
        with pytest.raises(QuotaExceeded):
            await running.store.mint(alice, kind="a", document={})


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("is_fresh", [True, False])
async def test_a_burst_of_mints_cannot_pass_the_limit(path: Path, alice: Caller, is_fresh: bool) -> None:
    """P6: mints on their way hold a place, also while the count is still being taken."""
    async with open_engine(path, limits=Limits(max_handles_per_user=10)) as running:
        store = running.store
        if not is_fresh:
            await fill(running, alice, 1)
        refused = 0

        async def mint() -> None:
            nonlocal refused
            try:
                await store.mint(alice, kind="a", document={})
            except QuotaExceeded:
                refused += 1

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for _ in range(40):
                    nursery.start_soon(mint)
        assert (await store.list(alice)).total == 10
        assert refused == 30 + (not is_fresh)


@pytest.mark.requirement("P6")
async def test_a_mint_that_failed_gives_its_place_to_one_that_waits(path: Path, alice: Caller) -> None:
    """P6: whether there is a place left is not known before the mints on their way are settled."""
    async with open_engine(path, limits=Limits(max_handles_per_user=1)) as running:
        store = running.store
        await fill(running, Caller("alice", "w", space="app"), 1)
        running.backend.hold()
        running.backend.next_failure = BackendError("The storage failed.")
        outcomes: list[str] = []

        async def mint(name: str) -> None:
            try:
                await store.mint(alice, kind=name, document={})
            except (BackendError, QuotaExceeded) as error:
                outcomes.append(f"{name} {error.code}")
            else:
                outcomes.append(f"{name} minted")

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(mint, "first")
                await running.backend.wait_for_batch()
                nursery.start_soon(mint, "second")
                await trio.testing.wait_all_tasks_blocked()
                assert outcomes == []
                running.backend.release()
            assert outcomes == ["first backend_error", "second minted"]
            await mint("third")
            assert outcomes[2:] == ["third quota_exceeded"]
