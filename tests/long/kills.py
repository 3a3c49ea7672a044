"""SIGKILL for the daemon a thousand times, at random moments, under shims that write without a pause.

    python tests/long/kills.py --kills 1000 --shims 16

Afterwards every write is looked for in the store. Fails if one was lost, applied twice or answered with an
error. How long the slowest call took is printed beside what it should take, and decides nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import click
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.aftermath import Aftermath, aftermath_of
from support.killer import Killer
from support.reaper import kill_daemons_below
from support.workload import Workload

SLOWEST_SECONDS = 3.0
"""What the slowest call should take, whatever was killed meanwhile."""
PATIENCE_SECONDS = 60.0
"""No single kill, its recovery included, takes longer."""
REPORT_KILLS = 50


async def kill_under(workload: Workload, killer: Killer, kills: int) -> Aftermath:
    """Kill that many daemons while everybody writes, and look what became of it."""
    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(workload.run)
        while killer.kills < kills:
            with trio.fail_after(PATIENCE_SECONDS):
                await killer.kill()
            if killer.kills % REPORT_KILLS == 0:
                click.echo(
                    f"{killer.kills} kills, {len(workload.calls)} calls, {time.monotonic() - began:.0f} s"
                )
        with trio.fail_after(PATIENCE_SECONDS):
            await workload.everybody_answered()
        workload.stop()
    with trio.fail_after(600):
        return await aftermath_of(workload)


def report(workload: Workload, killer: Killer, found: Aftermath) -> None:
    """Print what happened."""
    times = sorted(call.ended - call.started for call in workload.calls if call.ended is not None)
    writes = sum(call.value is not None and call.is_acknowledged for call in workload.calls)
    click.echo(
        f"kills      {killer.kills}, of them {killer.early_kills} while a daemon started or right after"
    )
    click.echo(f"calls      {len(workload.calls)}, of them {writes} acknowledged writes of one value each")
    for name in ("lost", "doubled", "failed", "problems"):
        entries: tuple[str, ...] = getattr(found, name)
        click.echo(f"{name:<11}{len(entries)}")
        for entry in entries[:10]:
            click.echo(f"           {entry[:300]}")
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        click.echo(f"{name:<11}{times[int(part * len(times))]:.3f} s")
    verdict = "within" if times[-1] <= SLOWEST_SECONDS else "ABOVE"
    click.echo(f"slowest    {times[-1]:.3f} s, {verdict} {SLOWEST_SECONDS:.0f} s")


@click.command()
@click.option("--kills", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option("--shims", default=16, show_default=True, type=click.IntRange(min=1))
@click.option("--programs", default=0, show_default=True, help="Writers over the connection of programs.")
@click.option("--pause", default=0.05, show_default=True, help="Seconds between two calls, at most.")
@click.option("--seed", default=1, show_default=True, help="Decides about moments and handles.")
def main(kills: int, shims: int, programs: int, pause: float, seed: int) -> None:
    """Kill the daemon of a store again and again under writing shims."""
    directory = Path(tempfile.mkdtemp(prefix="kills-", dir="/tmp"))
    os.environ["HOME"] = str(directory)
    data_dir = directory / "data"
    workload = Workload(data_dir, writers=shims, programs=programs, pause_seconds=pause, seed=seed)
    killer = Killer(workload, seed=seed)
    try:
        found = trio.run(kill_under, workload, killer, kills)
    finally:
        kill_daemons_below(directory)
        shutil.rmtree(directory, ignore_errors=True)
    report(workload, killer, found)
    sys.exit(0 if found.is_clean else 1)


if __name__ == "__main__":
    main()
