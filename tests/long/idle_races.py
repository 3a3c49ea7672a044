"""Let clients come, again and again, at the moment in which the idle daemon leaves.

    python tests/long/idle_races.py --rounds 2000 --stores 6

Fails if a save was not answered, or is not there once.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

import click
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from mcpstated.protocol.paths import Paths
from support.idle_races import race
from support.reaper import kill_daemons_below


async def race_everywhere(directory: Path, *, stores: int, rounds: int, seed: int) -> list[str]:
    """Race in several stores side by side; return what went wrong."""
    wrong: list[str] = []

    async def race_in(number: int) -> None:
        try:
            total = await race(directory / str(number), rounds, seed=seed + number)
        except Exception:
            wrong.append(f"store {number}: {traceback.format_exc()}")
            return
        if total != rounds:
            wrong.append(f"store {number}: {total} handles after {rounds} rounds")

    async with trio.open_nursery() as nursery:
        for number in range(stores):
            nursery.start_soon(race_in, number)
    return wrong


@click.command()
@click.option("--rounds", default=2000, show_default=True, help="In all stores together.")
@click.option(
    "--stores", default=6, show_default=True, type=click.IntRange(min=1), help="Raced in side by side."
)
@click.option("--seed", default=1, show_default=True, help="Decides about the moments.")
def main(rounds: int, stores: int, seed: int) -> None:
    """Let clients come when the daemon leaves."""
    directory = Path(tempfile.mkdtemp(prefix="idle-", dir="/tmp"))
    os.environ["HOME"] = str(directory)
    each = -(-rounds // stores)

    async def run() -> list[str]:
        return await race_everywhere(directory, stores=stores, rounds=each, seed=seed)

    try:
        wrong = trio.run(run)
        logs = [Path(Paths(str(directory / str(number))).log).read_text() for number in range(stores)]
    finally:
        kill_daemons_below(directory)
        shutil.rmtree(directory, ignore_errors=True)
    starts = sum(log.count("daemon started") for log in logs)
    click.echo(f"rounds         {each * stores} in {stores} stores")
    click.echo(f"daemon starts  {starts}: so often the client came too late")
    click.echo(f"wrong          {len(wrong)}")
    for text in wrong:
        click.echo(text)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
