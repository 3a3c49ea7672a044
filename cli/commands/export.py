"""`mcpstated export`: handles as lines of JSON."""

from __future__ import annotations

import gzip
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import click

from mcpstated.cli import words
from mcpstated.cli.blocks import Line
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.options import Invocation, data_dir_option, pass_invocation
from mcpstated.cli.refusals import refusals_as_errors
from mcpstated.cli.result import Problem, Result
from mcpstated.cli.settings import settings_of


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
    found: set[str] = set()
    count = 0
    with refusals_as_errors(database), _opened(output) as out:
        lines = export_lines(
            database, now=time.time(), user=of_user, kind=kind, handles=handles, with_history=with_history
        )
        for handle, line in lines:
            out.write(line.encode() + b"\n")
            if handle:
                found.add(handle)
                count += 1
    missing = sorted({*handles} - found)
    written = Line(f"{output}: {words.count(count, 'handle')}.", "good")
    return Result(
        "export",
        ExitCode.FAILED if missing else ExitCode.OK,
        blocks=() if output is None or missing else (written,),
        errors=tuple(Problem("handle_not_found", f"There is no handle {handle}.") for handle in missing),
    )


@contextmanager
def _opened(output: str | None) -> Iterator[IO[bytes]]:
    """Give where to write; a file gets its name when it is whole, and there is none if the block fails."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = Path(f"{output}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as raw:
            if output.endswith(".gz"):
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb") as packed:
                    yield cast("IO[bytes]", packed)
            else:
                yield raw
            raw.flush()
            os.fsync(raw.fileno())
        part.rename(output)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
