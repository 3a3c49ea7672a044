"""Live through a month of 10,000 patches a day in simulated time, and look at what is left on the disk.

    python tests/long/month.py
    python tests/long/month.py --days 90 --patches 20000 --work-dir /dev/shm

Engine, sweeper and files are real, with the default limits; only the clock is moved. Beside the patches,
handles are made that expire, and others are deleted. Prints a line for each day, and what the limits allow:
docs/retention.md says how that is worked out.

Exits with 1 if the disk, the write-ahead log or a table ever holds more than that.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import click
import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mcpstated.daemon.maintenance.verify import verify
from mcpstated.daemon.testing import open_engine
from mcpstated.protocol.limits import Limits
from support.busy_month import BusyDays, Figures, Habits, bytes_bound, row_bounds

LIMITS = Limits()


async def live(path: Path, habits: Habits, days: int) -> list[str]:
    """Live through the days, print what is there in the evenings, and return what was too much."""
    rows = row_bounds(LIMITS, habits)
    problems: list[str] = []
    click.echo(f"{'day':>5} {'database':>13} {'log':>13} {'all files':>13} " + _columns(rows))
    async with open_engine(path, limits=LIMITS) as running:
        busy = BusyDays(running, path, habits, LIMITS)
        await busy.begin()
        for day in range(1, days + 1):
            figures = await busy.live_a_day()
            click.echo(_line(str(day), figures))
            bound = bytes_bound(LIMITS, habits, document_bytes=await busy.largest_document_bytes())
            problems += [
                f"day {day}: {count:,} rows of {name}, {rows[name]:,.0f} allowed"
                for name, count in figures.rows.items()
                if count > rows[name]
            ]
            if figures.all_bytes > bound:
                problems.append(f"day {day}: {figures.all_bytes:,} bytes, {bound:,} allowed")
        click.echo(f"{'most':>5} {'':>13} {LIMITS.wal_bytes:>13,} {bound:>13,} " + _numbers(rows))
        largest = await busy.largest_document_bytes()
    if busy.largest_wal_bytes > LIMITS.wal_bytes:
        problems.append(f"the log had {busy.largest_wal_bytes:,} bytes, {LIMITS.wal_bytes:,} are allowed")
    closed = sum(file.stat().st_size for file in path.parent.iterdir())
    click.echo(
        f"the log had at most {busy.largest_wal_bytes:,} bytes after a pass of the sweeper; "
        f"the largest state has {largest:,}; closed, all files have {closed:,}"
    )
    verdict = verify(path)
    problems += [f"{problem.where}: {problem.what}" for problem in verdict.problems]
    return problems


def _line(day: str, figures: Figures) -> str:
    sizes = (figures.database_bytes, figures.wal_bytes, figures.all_bytes)
    return f"{day:>5} " + " ".join(f"{size:>13,}" for size in sizes) + " " + _numbers(figures.rows)


def _columns(rows: dict[str, float]) -> str:
    return " ".join(f"{name:>12}" for name in rows)


def _numbers(rows: dict[str, int] | dict[str, float]) -> str:
    return " ".join(f"{int(count):>12,}" for count in rows.values())


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--days", default=30, show_default=True)
@click.option("--patches", default=10_000, show_default=True, help="Patches a day.")
@click.option("--handles", default=100, show_default=True, help="Handles that are patched.")
@click.option("--passing", default=50, show_default=True, help="Handles a day that expire half a day later.")
@click.option("--deleted", default=50, show_default=True, help="Handles a day that are deleted.")
@click.option("--slots", default=144, show_default=True, help="Passes of the sweeper a day.")
@click.option("--work-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), default=None)
def main(
    days: int, patches: int, handles: int, passing: int, deleted: int, slots: int, work_dir: Path | None
) -> None:
    """Run it and say what came of it."""
    begun = time.monotonic()
    habits = Habits(handles, patches, slots, passing, deleted)
    click.echo(" ".join(f"{name}={value}" for name, value in asdict(habits).items()))
    with tempfile.TemporaryDirectory(prefix="month-", dir=work_dir) as scratch:
        problems = trio.run(live, Path(scratch, "store", "state.db"), habits, days)
    for problem in problems:
        click.echo(f"TOO MUCH {problem}")
    click.echo(f"{'FAILED' if problems else 'within bounds'} ({time.monotonic() - begun:.0f} s)")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
