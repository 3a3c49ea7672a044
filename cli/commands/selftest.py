"""`mcpstated selftest`: does the store lose, double or reorder anything on this machine?"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import click

from mcpstated.cli import words
from mcpstated.cli.blocks import Block, Column, Fields, Line, Rows
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.failures import interrupted
from mcpstated.cli.options import json_option
from mcpstated.cli.result import Problem, Result

if TYPE_CHECKING:
    from mcpstated.cli.selftest.progress import Show
    from mcpstated.cli.selftest.run import SelfTest

_SHOWN = 20


@click.command("selftest")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True, max=10_080),
    default=1.0,
    show_default=True,
    metavar="N",
    help="How long the clients work.",
)
@click.option(
    "--clients",
    type=click.IntRange(min=1, max=64),
    default=4,
    show_default=True,
    metavar="K",
    help="How many clients work at the same time.",
)
@json_option
def command(minutes: float, clients: int) -> Result:
    """Torture a store of its own, and check that nothing was lost, doubled or reordered.

    Real clients work on shared handles while the daemon is killed again and again. Everything that they
    were told is checked. It uses a private directory; your own store is not touched. Ctrl-C ends it early.
    """
    import trio

    from mcpstated.cli.selftest.progress import progress_on
    from mcpstated.cli.selftest.run import SelfTest

    test = SelfTest(minutes, clients)
    with progress_on(sys.stderr) as show:
        trio.run(_run, test, show)
    return _result(test)


async def _run(test: SelfTest, show: Show) -> None:
    """Run the test; a first signal ends it in order, a second one at once. Everything is cleaned up."""
    import trio

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                async for _ in signals:
                    if test.is_interrupted:
                        nursery.cancel_scope.cancel()
                    test.interrupt()

            nursery.start_soon(listen)
            await test.run(show)
            nursery.cancel_scope.cancel()


def _result(test: SelfTest) -> Result:
    problems = test.tally.problems
    if not problems and not test.is_finished:
        return interrupted("selftest")
    if problems:
        code = ExitCode.FAILED
        verdict = Line(f"WRONG: {words.count(len(problems), 'problem')}. The directory is kept.", "bad")
    else:
        code = ExitCode.INTERRUPTED if test.is_interrupted else ExitCode.OK
        text = "Nothing was lost, doubled or out of order, and every read was right."
        verdict = Line(f"Interrupted. So far: {text}" if test.is_interrupted else text, "good")
    return Result(
        "selftest",
        code,
        data=_data(test),
        blocks=(_numbers(test), *_problem_blocks(test), Line(""), verdict),
        errors=_errors(test),
    )


def _data(test: SelfTest) -> dict[str, object]:
    tally = test.tally
    return {
        "is_consistent": not tally.problems,
        "seconds": round(test.seconds, 3),
        "clients": test.clients,
        "calls": tally.calls,
        "writes": tally.writes,
        "reads": tally.reads,
        "conflicts": tally.conflicts,
        "not_found": tally.not_found,
        "failed": tally.failed,
        "unknown": tally.unknown,
        "slowest_seconds": round(tally.slowest_seconds, 6),
        "slowest_operation": tally.slowest_operation,
        "daemon_kills": tally.daemon_kills,
        "client_kills": tally.client_kills,
        "handles": tally.handles,
        "versions": tally.versions,
        "lost": tally.lost,
        "doubled": tally.doubled,
        "problems": [
            {"kind": problem.kind, "handle": problem.handle, "what": problem.what}
            for problem in tally.problems
        ],
        "directory": test.directory if tally.problems else None,
    }


def _numbers(test: SelfTest) -> Fields:
    tally = test.tally
    rows = [
        ("time", f"{words.span(test.seconds)}, {words.count(test.clients, 'client')}"),
        ("calls", f"{tally.calls:,}: {tally.writes:,} changes, {tally.reads:,} reads"),
        ("lost the race", f"{words.count(tally.conflicts, 'save')}, and each was told so"),
        (
            "kills",
            f"{words.count(tally.daemon_kills, 'daemon')}, {words.count(tally.client_kills, 'client')}",
        ),
        ("slowest call", f"{tally.slowest_seconds:.3f} s {tally.slowest_operation}"),
        ("failed calls", f"{tally.failed:,}"),
        (
            "unknown outcomes",
            f"{tally.unknown:,} (the client was killed meanwhile, or told that nobody knows)",
        ),
        ("checked", f"{words.count(tally.handles, 'handle')} with {words.count(tally.versions, 'version')}"),
        ("lost", f"{tally.lost:,}"),
        ("doubled", f"{tally.doubled:,}"),
    ]
    if tally.problems:
        rows.append(("directory", test.directory))
    return Fields(tuple(rows))


def _problem_blocks(test: SelfTest) -> list[Block]:
    problems = test.tally.problems
    if not problems:
        return []
    rows = tuple((problem.kind, problem.handle, problem.what) for problem in problems[:_SHOWN])
    columns = (Column("WRONG"), Column("HANDLE", rank=1), Column("WHAT", grows=True))
    blocks: list[Block] = [Line(""), Rows(columns, rows)]
    if len(problems) > _SHOWN:
        blocks.append(Line(f"and {len(problems) - _SHOWN:,} more (--json has them).", "dim"))
    return blocks


def _errors(test: SelfTest) -> tuple[Problem, ...]:
    problems = test.tally.problems
    if problems:
        text = f"The store is not consistent: {words.count(len(problems), 'problem')}."
        hint = f"Everything about it is in {test.directory}; history.jsonl has the calls."
        return (Problem("inconsistent", text, hint=hint),)
    return interrupted("selftest").errors if test.is_interrupted else ()
