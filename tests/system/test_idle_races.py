"""Ring 4: the idle exit of a daemon against clients that come in that very moment."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
import trio

from support.idle_races import race
from support.reaper import kill_daemons_below

STORES, ROUNDS = 4, 3


@pytest.mark.once
@pytest.mark.requirement("C16", "P2")
async def test_a_client_that_comes_when_the_daemon_leaves_is_served() -> None:
    """P2: between the decision to leave and its end nobody may be turned away, and nothing made twice."""
    directory = Path(tempfile.mkdtemp(prefix="idle-", dir="/tmp"))

    async def race_in(number: int) -> None:
        assert await race(directory / str(number), ROUNDS, seed=number) == ROUNDS

    try:
        with trio.fail_after(90):
            async with trio.open_nursery() as nursery:
                for number in range(STORES):
                    nursery.start_soon(race_in, number)
    finally:
        kill_daemons_below(directory)
        shutil.rmtree(directory, ignore_errors=True)
