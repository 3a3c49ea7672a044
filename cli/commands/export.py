"""`mcpstated export`: handles as lines of JSON."""

from __future__ import annotations

import gzip
import secrets
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
    with refusals_as_errors(database), _opened(database, output) as out:
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
    errors = [Problem("handle_not_found", f"There is no handle {handle}.") for handle in missing]
    if errors and output is not None:
        errors.append(Problem("incomplete", f"{output} holds the others: {words.count(count, 'handle')}."))
    return Result(
        "export",
        ExitCode.FAILED if missing else ExitCode.OK,
        blocks=() if output is None or missing else (written,),
        errors=tuple(errors),
    )


@contextmanager
def _opened(database: Path, output: str | None) -> Iterator[IO[bytes]]:
    """Give where to write; a file gets its name when it is whole, and there is none if the block fails."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from mcpstated.daemon.maintenance.backup import refuse_own_files
    from mcpstated.daemon.maintenance.files import new_file, put_in_place

    target = Path(output).absolute()
    refuse_own_files(database, target)
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        with new_file(part) as raw:
            if output.endswith(".gz"):
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb") as packed:
                    yield cast("IO[bytes]", packed)
            else:
                yield raw
        put_in_place(part, target, may_replace=True)
    finally:
        part.unlink(missing_ok=True)
