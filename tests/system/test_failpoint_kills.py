"""Ring 4: the daemon dies at failpoints of all kinds; nothing is lost, doubled or answered wrongly."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
import trio

from mcpstated.daemon.failpoints import FAILPOINTS
from support.failpoint_scenes import ELSEWHERE, SCENES, die_at, step_of
from support.layout import ROOT
from support.reaper import kill_daemons_below

AT_A_TIME = 3
ONE_IN = 4
"""The part of the failpoints that is taken here; `tests/long/failpoints.py` takes all of them."""
GROUPS = {
    "writing": ("append", "write", "commit", "relay"),
    "asking": ("session", "note_request", "empty_trash"),
    "beginning and ending": ("create", "open", "migration", "close"),
    "sweeping": (
        "note_time",
        "expire",
        "trim_trash",
        "purge",
        "forget_settled",
        "forget_old",
        "fold",
        "tidy",
    ),
}
"""Steps whose failpoints are reached side by side."""


def test_every_failpoint_is_reached_here_or_named_with_who_reaches_it() -> None:
    """A failpoint at which nothing ever dies proves nothing; a new one needs a scene."""
    steps = {step_of(name) for name in FAILPOINTS}
    played = {step_of(name) for name in SCENES}
    assert steps == {*played, *ELSEWHERE}
    assert not played & {*ELSEWHERE}
    assert {step for group in GROUPS.values() for step in group} == played
    for reason in ELSEWHERE.values():
        assert (ROOT / reason.rpartition(": ")[2]).is_file(), reason


@pytest.mark.once
@pytest.mark.requirement("P1", "P2")
@pytest.mark.parametrize("group", GROUPS)
async def test_wherever_the_daemon_dies_every_acknowledged_write_is_there_once(group: str) -> None:
    """P1, P2: between any two steps a kill may come; the shims go on with the next daemon."""
    names = [name for name in FAILPOINTS if step_of(name) in GROUPS[group]][2::ONE_IN]
    directory = Path(tempfile.mkdtemp(prefix="fp-", dir="/tmp"))
    limit = trio.CapacityLimiter(AT_A_TIME)

    async def die_there(name: str) -> None:
        async with limit:
            data_dir = directory / name
            data_dir.mkdir(mode=0o700)
            try:
                found = await die_at(name, data_dir, shims_start_it=False)
                assert found.is_clean, found
            except BaseException as error:
                error.add_note(f"The daemon was to die at {name}.")
                raise

    try:
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(die_there, name)
    finally:
        kill_daemons_below(directory)
        shutil.rmtree(directory, ignore_errors=True)
