"""Power cuts at many moments of a store's life: what was acknowledged is there, and nothing is half there.

`tests/long/power_cut.py` does the same at every moment.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from mcpstated.daemon.testing import open_engine
from support.cut_story import Story, tell
from support.cut_verdict import Judge, Lost
from support.disk_states import Disk, states_at
from support.old_store import make_old_store
from support.power_cut import Bound, PowerCut, Step, Synced, Wrote

SEED = 1
MOMENTS = 55
"""At how many moments of a recording the power is cut."""


class ForgetfulDisk(PowerCut):
    """A disk that says it has flushed, and has not."""

    def record(self, step: Step) -> None:
        """Leave flushes out."""
        if not isinstance(step, Synced):
            super().record(step)


@pytest.fixture
def disk(path: Path) -> Iterator[Callable[[type[PowerCut]], PowerCut]]:
    """Make a recorded disk below the database."""
    made: list[PowerCut] = []
    path.parent.mkdir(mode=0o700)

    def make(kind: type[PowerCut]) -> PowerCut:
        made.append(kind(f"cut-{path.parent.parent.name}", path.parent))
        return made[0]

    yield make
    for disk in made:
        disk.unregister()


async def judge(story: Story, path: Path) -> Judge:
    """Cut the power at some moments and return who looked at the states."""
    looking = Judge(story, path, path.parent.parent / "cut")
    total = len(story.steps)
    moments = sorted(random.Random(SEED).sample(range(total), MOMENTS))
    await looking.try_moments([*moments, total], seed=SEED, torn=1)
    return looking


@pytest.mark.once
@pytest.mark.requirement("P1", "P2", "P3")
@pytest.mark.parametrize("is_old", [False, True], ids=["new", "old"])
async def test_after_a_power_cut_everything_acknowledged_is_there_whole_and_in_order(
    path: Path, disk: Callable[[type[PowerCut]], PowerCut], is_old: bool
) -> None:
    """P1 to P3: from the creation or the migration on, with restarts, folds, checkpoints and expiry.

    Changes, their answers under tokens and request keys, and the trash; each state takes the next write.
    """
    recorded = disk(PowerCut)
    if is_old:
        make_old_store(path)
    with trio.fail_after(60):
        story = await tell(recorded, path, seed=SEED, rounds=7)
        looked = await judge(story, path)
    assert story.tokens
    assert story.requests
    assert story.emptied
    assert looked.tally.distinct > 100


@pytest.mark.once
@pytest.mark.requirement("P1")
async def test_a_disk_that_does_not_flush_is_found_out(
    path: Path, disk: Callable[[type[PowerCut]], PowerCut]
) -> None:
    """P1 rests on flushes: without them these tests must fail, or they prove nothing."""
    forgetful = disk(ForgetfulDisk)
    with trio.fail_after(60):
        story = await tell(forgetful, path, seed=SEED, rounds=4)
        with pytest.raises(Lost):
            await judge(story, path)


def test_a_cut_may_leave_any_choice_of_what_was_not_flushed() -> None:
    """The example of `support.disk_states`, and a file whose name was not flushed."""
    disk = Disk()
    for step in (Bound("f", 1), Wrote(1, 0, b"aa"), Synced(1), Wrote(1, 0, b"b"), Wrote(1, 1, b"c")):
        disk.play(step)
    states = [state.get("f") for state in states_at(disk, random.Random(SEED), torn=20)]
    assert set(states) == {None, b"aa", b"ba", b"ac", b"bc"}
    assert states[:2] == [b"bc", None]


def test_a_torn_write_keeps_some_sectors_and_may_leave_rubbish_where_the_file_grew() -> None:
    """What was on the disk is never rubbish, whatever is written over it."""
    disk = Disk()
    for step in (Bound("f", 1), Wrote(1, 0, b"a" * 1024), Synced(1), Wrote(1, 0, b"b" * 2048)):
        disk.play(step)
    seen = {disk.torn(random.Random(number)).get("f") for number in range(300)}
    contents = {content for content in seen if content is not None}
    starts = {content[:1024] for content in contents}
    assert starts == {x * 512 + y * 512 for x in (b"a", b"b") for y in (b"a", b"b")}
    assert any(content[1024:1536] not in (b"", b"b" * 512, bytes(512)) for content in contents)
    assert {len(content) for content in contents} == {1024, 2048}


@pytest.mark.requirement("P1")
async def test_the_directories_of_a_new_store_are_flushed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1: a store whose directory is gone after a power cut is gone."""
    flushed: list[tuple[int, int]] = []
    flush = os.fsync

    def note(descriptor: int) -> None:
        flush(descriptor)
        found = os.fstat(descriptor)
        flushed.append((found.st_dev, found.st_ino))

    monkeypatch.setattr(os, "fsync", note)
    async with open_engine(tmp_path / "new" / "newer" / "state.db"):
        pass
    for directory in (tmp_path / "new" / "newer", tmp_path / "new", tmp_path):
        found = directory.stat()
        assert (found.st_dev, found.st_ino) in flushed
