"""Let a daemon die at every failpoint that one reaches, under writers whose shims start the next daemon.

    python tests/long/failpoints.py [STEP or NAME ...]

Afterwards every write is looked for in the store. Fails if one was lost, applied twice or answered with an
error, or if the daemon did not die where it was to. `tests/system/test_failpoint_kills.py` takes a sample.
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

from mcpstated.daemon.failpoints import FAILPOINTS
from support.failpoint_scenes import ELSEWHERE, die_at, step_of
from support.reaper import kill_daemons_below


async def die_everywhere(names: list[str], directory: Path, *, at_a_time: int, time: int | None) -> list[str]:
    """Take the failpoints, some at a time; return those where something was wrong."""
    wrong = []
    limit = trio.CapacityLimiter(at_a_time)

    async def die_there(name: str) -> None:
        data_dir = directory / name
        data_dir.mkdir(mode=0o700)
        async with limit:
            try:
                found = await die_at(name, data_dir, writers=3, shims_start_it=True, time=time)
            except Exception:
                wrong.append(name)
                click.echo(f"{name}: {traceback.format_exc()}")
                return
            finally:
                kill_daemons_below(data_dir)
        click.echo(f"{name}: {'nothing lost, doubled or failed' if found.is_clean else found}")
        if not found.is_clean:
            wrong.append(name)

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(die_there, name)
    return wrong


@click.command()
@click.argument("wanted", metavar="[STEP or NAME]...", nargs=-1)
@click.option("--at-a-time", default=2, show_default=True, type=click.IntRange(min=1))
@click.option("--time", type=click.IntRange(min=1), help="Die there the so many-th time.")
def main(wanted: tuple[str, ...], at_a_time: int, time: int | None) -> None:
    """Let a daemon die at failpoints: all, those of some steps, or some."""
    names = [
        name
        for name in FAILPOINTS
        if step_of(name) not in ELSEWHERE and (not wanted or name in wanted or step_of(name) in wanted)
    ]
    directory = Path(tempfile.mkdtemp(prefix="fp-", dir="/tmp"))
    os.environ["HOME"] = str(directory)

    async def run() -> list[str]:
        return await die_everywhere(names, directory, at_a_time=at_a_time, time=time)

    try:
        wrong = trio.run(run)
    finally:
        kill_daemons_below(directory)
        shutil.rmtree(directory, ignore_errors=True)
    click.echo(f"{len(names)} failpoints, wrong: {', '.join(wrong) or 'none'}")
    sys.exit(1 if wrong or not names else 0)


if __name__ == "__main__":
    main()
