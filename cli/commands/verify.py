"""`mcpstated verify`: is the store, or a backup, sound?"""

from __future__ import annotations

from pathlib import Path

import click

from mcpstated.cli import words
from mcpstated.cli.blocks import Block, Column, Line, Rows
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.options import Invocation, data_dir_option, json_option, pass_invocation
from mcpstated.cli.refusals import refusals_as_errors
from mcpstated.cli.result import Problem, Result
from mcpstated.cli.settings import settings_of
from mcpstated.protocol.errors import BackendError, InvalidInput, McpStateError

_SHOWN = 50


@click.command("verify")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False))
@json_option
@data_dir_option
@pass_invocation
def command(invocation: Invocation, file: str | None) -> Result:
    """Examine the store, or a backup: the file, and that every log leads to what its handle says.

    Works while a daemon runs, and when none will start.
    """
    from mcpstated.daemon.maintenance.verify import verify

    path = Path(file or settings_of(invocation).database).absolute()
    try:
        with refusals_as_errors(path):
            verdict = verify(path)
    except (BackendError, InvalidInput) as error:
        if not path.exists():
            raise
        return _nothing_to_examine(path, error)
    held = f"{words.count(verdict.handles, 'handle')}, {words.count(verdict.changes, 'change')}"
    data = {
        "path": verdict.path,
        "is_sound": verdict.is_sound,
        "schema_version": verdict.schema_version,
        "revision": verdict.revision,
        "handles": verdict.handles,
        "changes": verdict.changes,
        "problems": [{"where": problem.where, "what": problem.what} for problem in verdict.problems],
    }
    if verdict.is_sound:
        text = f"{verdict.path} is sound: {held}, revision {verdict.revision:,}."
        return Result("verify", data=data, blocks=(Line(text, "good"),))
    rows = tuple((problem.where, problem.what) for problem in verdict.problems[:_SHOWN])
    blocks: list[Block] = [
        Line(f"{verdict.path}: {held}.\n"),
        Rows((Column("WHERE"), Column("WHAT IS WRONG", grows=True)), rows, empty=""),
    ]
    if len(verdict.problems) > _SHOWN:
        blocks.append(Line(f"and {len(verdict.problems) - _SHOWN:,} more (--json has them).", "dim"))
    return Result(
        "verify",
        ExitCode.FAILED,
        data=data,
        blocks=tuple(blocks),
        errors=(
            Problem(
                "damaged",
                f"{words.count(len(verdict.problems), 'problem')} found in {verdict.path}.",
                hint="What else is in it can still be read. To go back to a backup: mcpstated restore FILE",
            ),
        ),
    )


def _nothing_to_examine(path: Path, error: McpStateError) -> Result:
    """Return what is said of a file that cannot be opened as a store at all."""
    return Result(
        "verify",
        ExitCode.FAILED,
        data={
            "path": str(path),
            "is_sound": False,
            "problems": [{"where": "file", "what": error.message}],
        },
        errors=(Problem("damaged", error.message),),
    )
