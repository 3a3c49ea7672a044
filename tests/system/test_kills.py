"""Ring 4: SIGKILL for the daemon, again and again, under shims that write without a pause."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from support.aftermath import Aftermath, aftermath_of
from support.killer import Killer
from support.reaper import kill_daemons_below
from support.workload import Workload


@pytest.fixture
def second_data_dir() -> Iterator[Path]:
    """A store beside the one of `data_dir`: a daemon that starts keeps only one processor busy."""
    directory = Path(tempfile.mkdtemp(prefix="state-", dir="/tmp"))
    yield directory
    kill_daemons_below(directory)
    shutil.rmtree(directory, ignore_errors=True)


async def kill_under(workload: Workload, *, kills: int, seed: int) -> Aftermath:
    """Kill that many daemons, let the writers end, and look what became of what they wrote."""
    killer = Killer(workload, seed=seed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(workload.run)
        while killer.kills < kills:
            await killer.kill()
        await workload.everybody_answered()
        workload.stop()
    return await aftermath_of(workload)


@pytest.mark.once
@pytest.mark.requirement("P1", "P2", "P3")
async def test_daemons_killed_at_random_moments_lose_nothing_and_double_nothing(
    data_dir: Path, second_data_dir: Path
) -> None:
    """P1, P2: what was acknowledged is there, once, and nobody but a slower answer tells of 25 kills."""
    found: dict[int, Aftermath] = {}

    async def be_a_store(directory: Path, kills: int) -> None:
        workload = Workload(directory, writers=3, seed=kills)
        found[kills] = await kill_under(workload, kills=kills, seed=kills)

    with trio.fail_after(150):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(be_a_store, data_dir, 12)
            nursery.start_soon(be_a_store, second_data_dir, 13)

    for aftermath in found.values():
        assert aftermath.is_clean, aftermath


@pytest.mark.once
@pytest.mark.requirement("P1", "P2")
async def test_the_requests_of_programs_are_answered_over_the_daemons_that_die(data_dir: Path) -> None:
    """P2: a program has no shim; its connection finds the next daemon and tells it what was not answered."""
    workload = Workload(data_dir, writers=1, programs=4)
    with trio.fail_after(90):
        found = await kill_under(workload, kills=3, seed=1)
    assert found.is_clean, found
