"""`mcpstated export`: handles as lines of JSON."""

from __future__ import annotations

import gzip
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

import click

from mcpstated.cli import words
from mcpstated.cli.blocks import Line
from mcpstated.cli.options import Invocation, data_dir_option, pass_invocation
from mcpstated.cli.refusals import refusals_as_errors
from mcpstated.cli.result import Result
from mcpstated.cli.settings import settings_of
from mcpstated.protocol.errors import HandleNotFound


@click.command("export")
@click.argument("handles", metavar="[HANDLE]...", nargs=-1)
@click.option("--history", "with_history", is_flag=True, help="Each handle's kept changes too.")
@click.option("--of-user", metavar="NAME", help="Only this user's handles.")
@click.option("--kind", metavar="KIND", help="Only handles of this kind.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write there instead of to standard output; compressed if it ends with .gz.",
)
@data_dir_option
@pass_invocation
def command(
    invocation: Invocation,
    handles: tuple[str, ...],
    with_history: bool,
    of_user: str | None,
    kind: str | None,
    output: str | None,
) -> Result:
    """Write handles as JSON Lines, all of them or those that are named; `mcpstated import` reads them.

    All lines are from one moment, while clients go on. Expired and deleted handles are left out.
    """
    from mcpstated.daemon.maintenance.export import export_lines

    database = Path(settings_of(invocation).database)
    count = -1  # the first line is no handle
    with refusals_as_errors(database), ExitStack() as stack:
        out = _opened(stack, output)
        lines = export_lines(
            database, now=time.time(), user=of_user, kind=kind, handles=handles, with_history=with_history
        )
        for line in lines:
            out.write(line.encode() + b"\n")
            count += 1
        if count == 0 and handles:
            raise HandleNotFound(f"There is no handle {handles[0]}.", handle=handles[0])
        if output is not None:
            stack.pop_all().close()
            Path(f"{output}.part").rename(output)
        else:
            out.flush()
    blocks = () if output is None else (Line(f"{output}: {words.count(count, 'handle')}.", "good"),)
    return Result("export", blocks=blocks)


def _opened(stack: ExitStack, output: str | None) -> IO[bytes]:
    """Return where to write; a file gets its name when it is whole."""
    if output is None:
        return sys.stdout.buffer
    part = Path(f"{output}.part")
    stack.callback(part.unlink, missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    raw = stack.enter_context(os.fdopen(descriptor, "wb"))
    return cast("IO[bytes]", stack.enter_context(gzip.open(raw, "wb"))) if output.endswith(".gz") else raw
