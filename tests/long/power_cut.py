"""Cut the power at every moment of a store's life, and look at many of the states that the disk may have.

    python tests/long/power_cut.py
    python tests/long/power_cut.py --seed 7 --rounds 30 --torn 10 --work-dir /dev/shm

A store is created (or migrated from the first schema, with --old), written to, swept, closed and opened
again on a disk that remembers each write, cut and flush. Then, for each moment: everything unflushed is kept;
all of it is lost; every choice of it if it is little; and some torn and shuffled choices. Each state that no
other one is like is opened by a fresh engine and compared with what had been acknowledged.

Exits with 1 if anything acknowledged is lost, or anything is there that must not be.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import click
import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.cut_story import Story, tell
from support.cut_verdict import Judge, Lost, Tally
from support.old_store import make_old_store
from support.power_cut import PowerCut

TELL_SECONDS = 300


def try_part(story: Story, database: Path, moments: range, seed: int, torn: int) -> Tally | str:
    """Try some moments; return how many states that were, or what was lost."""
    judge = Judge(story, database, database.parent.parent / f"cut-{moments.start}")
    try:
        trio.run(lambda: judge.try_moments(moments, seed=seed, torn=torn))
    except Lost as lost:
        return str(lost)
    return judge.tally


def run(database: Path, *, is_old: bool, seed: int, rounds: int, torn: int, processes: int) -> bool:
    """Tell one story and cut it everywhere. Returns: True if nothing was lost."""
    database.parent.mkdir(parents=True)
    if is_old:
        make_old_store(database)
    disk = PowerCut(f"cut-{seed}-{is_old}", database.parent)

    async def record() -> Story:
        with trio.fail_after(TELL_SECONDS):
            return await tell(disk, database, seed=seed, rounds=rounds)

    story = trio.run(record)
    total = disk.moment + 1
    click.echo(
        f"{'old' if is_old else 'new'} store, seed {seed}: {len(story.facts)} changes in {total - 1} steps, "
        f"{database.stat().st_size:,} bytes"
    )
    bounds = [total * part // processes for part in range(processes + 1)]
    parts = [range(start, end) for start, end in itertools.pairwise(bounds)]
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        results = pool.starmap(try_part, [(story, database, part, seed, torn) for part in parts], chunksize=1)
    tallies = [result for result in results if isinstance(result, Tally)]
    failures = [result for result in results if isinstance(result, str)]
    click.echo(
        f"  {sum(tally.moments for tally in tallies):,} moments, "
        f"{sum(tally.states for tally in tallies):,} states, "
        f"{sum(tally.distinct for tally in tallies):,} of them distinct and opened"
    )
    for failure in failures:
        click.echo(f"  LOST {failure}")
    return not failures


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--seed", default=1, show_default=True, help="What the story and the torn states come from.")
@click.option("--rounds", default=10, show_default=True, help="How long the story is.")
@click.option("--torn", default=3, show_default=True, help="Torn states for each moment.")
@click.option("--old", is_flag=True, help="Only the store of the first schema.")
@click.option("--new", is_flag=True, help="Only the new store.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="How many at once.")
@click.option("--work-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), default=None)
def main(
    seed: int, rounds: int, torn: int, old: bool, new: bool, processes: int, work_dir: Path | None
) -> None:
    """Run the stories and say what came of them."""
    begun = time.monotonic()
    is_sound = True
    with tempfile.TemporaryDirectory(prefix="power-cut-", dir=work_dir) as scratch:
        for is_old in (False, True):
            if (old or new) and not (old if is_old else new):
                continue
            database = Path(scratch, "old" if is_old else "new", "store", "state.db")
            is_sound &= run(database, is_old=is_old, seed=seed, rounds=rounds, torn=torn, processes=processes)
    click.echo(f"{'nothing was lost' if is_sound else 'FAILED'} ({time.monotonic() - begun:.0f} s)")
    sys.exit(0 if is_sound else 1)


if __name__ == "__main__":
    main()
