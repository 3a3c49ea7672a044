"""The bar that people watch meanwhile; nothing where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from mcpstated.cli import words
from mcpstated.cli.render import console_for

if TYPE_CHECKING:
    from mcpstated.cli.selftest.run import SelfTest
    from mcpstated.cli.selftest.tally import Tally

Show = Callable[["SelfTest"], None]


@contextmanager
def progress_on(stream: TextIO) -> Iterator[Show]:
    """Give what shows how far a self-test is; the line goes away at the end."""
    console = console_for(stream)
    if not console.is_terminal:
        yield lambda _test: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[counts]}"),
    )
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        task = progress.add_task("", counts="", total=1.0)

        def show(test: SelfTest) -> None:
            progress.update(
                task,
                description=test.phase,
                total=test.minutes * 60,
                completed=test.seconds,
                counts=counts_of(test.tally),
                refresh=True,
            )

        yield show


def counts_of(tally: Tally) -> str:
    """Return the numbers that move, in a line: `1,204 calls, 7 kills, 3 handles checked`."""
    parts = [
        words.count(tally.calls, "call"),
        words.count(tally.daemon_kills + tally.client_kills, "kill"),
        f"{words.count(tally.handles, 'handle')} checked",
    ]
    if tally.problems:
        parts.append(words.count(len(tally.problems), "problem"))
    return ", ".join(parts)
