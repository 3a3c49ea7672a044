"""`mcpstated import`: take handles over from an export, or from mcpstate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpstated.cli import words
from mcpstated.cli.blocks import Column, Line, Rows
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.imports import lines_of, records_of_export
from mcpstated.cli.options import Invocation, data_dir_option, json_option, pass_invocation
from mcpstated.cli.result import Problem, Result
from mcpstated.protocol.documents import same
from mcpstated.protocol.errors import HandleExists, HandleExpired, HandleNotFound, InvalidInput, McpStateError
from mcpstated.protocol.handle_record import HandleRecord, Refused

if TYPE_CHECKING:
    from mcpstated.connection import DaemonClient

_SHOWN = 20
_DEFAULT = "default"
Item = HandleRecord | Refused


@dataclass(slots=True)
class Outcome:
    """What became of the records, by handle."""

    imported: int = 0
    replaced: int = 0
    unchanged: int = 0
    """There already, with the same state."""
    kept: list[str] = field(default_factory=list)
    """There already with another state, which stays."""
    without_history: list[str] = field(default_factory=list)
    """Whose history is too large to be sent."""
    refused: list[Refused] = field(default_factory=list)


_AT_ONCE = 16
"""Handles that are under way to the daemon together."""


@click.command("import")
@click.argument("file", metavar="[FILE]", required=False)
@click.option(
    "--from-mcpstate",
    metavar="[DATABASE]",
    is_flag=False,
    flag_value=_DEFAULT,
    help="Take over a database of mcpstate instead; without a path the one at ~/.mcpstate/state.db.",
)
@click.option("--as-user", metavar="NAME", help="Give all handles to this user, whoever had them.")
@click.option("--replace", "replaces", is_flag=True, help="Where a handle is there already, save over it.")
@json_option
@data_dir_option
@pass_invocation
def command(
    invocation: Invocation, file: str | None, from_mcpstate: str | None, as_user: str | None, replaces: bool
) -> Result:
    """Take handles over from an export (FILE, or - for standard input), or from mcpstate.

    Handles keep their names, versions, times and, if the export has it, their history. One that is there
    already stays as it is, unless --replace is given; nothing is ever deleted.
    """
    if (file is None) == (from_mcpstate is None):
        raise click.UsageError("Give either a FILE that `mcpstated export` made, or --from-mcpstate.")
    with ExitStack() as stack:
        if file is not None:
            items: Iterator[Item] = records_of_export(stack.enter_context(lines_of(file)))
        else:
            from mcpstated.daemon.maintenance.mcpstate import (
                DEFAULT_PATH,
                mcpstate_database,
                records_of_mcpstate,
            )

            database = DEFAULT_PATH if from_mcpstate in (None, _DEFAULT) else from_mcpstate
            items = records_of_mcpstate(stack.enter_context(mcpstate_database(Path(database).expanduser())))
        outcome = _import_all(invocation, items, as_user=as_user, replaces=replaces)
    return _result(outcome)


def _import_all(
    invocation: Invocation, items: Iterator[Item], *, as_user: str | None, replaces: bool
) -> Outcome:
    import trio

    from mcpstated.connection import open_client

    outcome = Outcome()

    async def run() -> None:
        for user, group in itertools.groupby(items, key=lambda item: _user_of(item, as_user)):
            if user is None:
                outcome.refused += [item for item in group if isinstance(item, Refused)]
                continue
            environ = {**invocation.environ(), "MCPSTATED_USER": user}
            async with open_client(invocation.paths(), role="cli", environ=environ, start=True) as client:
                records = (record for record in group if not isinstance(record, Refused))
                await _import_group(client, records, outcome, replaces=replaces)

    trio.run(run)
    return outcome


async def _import_group(
    client: DaemonClient, records: Iterator[HandleRecord], outcome: Outcome, *, replaces: bool
) -> None:
    """Import one user's handles, several at a time so that they share the flushes of the disk.

    Raises:
        McpStateError: What every other handle would meet too.
    """
    import trio

    fatal: list[McpStateError] = []
    free = trio.Semaphore(_AT_ONCE)

    async def take(record: HandleRecord) -> None:
        try:
            await _import_one(client, record, outcome, replaces=replaces)
        except McpStateError as error:
            if _is_fatal(error):
                fatal.append(error)
                nursery.cancel_scope.cancel()
            else:
                outcome.refused.append(Refused(record.handle, error.message))
        finally:
            free.release()

    async with trio.open_nursery() as nursery:
        for record in records:
            await free.acquire()
            nursery.start_soon(take, record)
    if fatal:
        raise fatal[0]


def _user_of(item: Item, as_user: str | None) -> str | None:
    return None if isinstance(item, Refused) else as_user or item.user


def _is_fatal(error: McpStateError) -> bool:
    """Tell whether the next handle would meet the same: the disk, the daemon, the connection."""
    return error.code in ("backend_error", "daemon_unavailable", "internal_error", "storage_full")


async def _import_one(
    client: DaemonClient, record: HandleRecord, outcome: Outcome, *, replaces: bool
) -> None:
    try:
        await _adopt(client, record, outcome)
    except HandleExists:
        try:
            here = await client.load(record.handle)
        except (HandleExpired, HandleNotFound):  # its time is over, or it lies in the trash
            outcome.kept.append(record.handle)
            return
        if same(here.state, record.document):
            outcome.unchanged += 1
        elif replaces:
            await client.save(record.handle, record.document, expect_version=here.info.version)
            outcome.replaced += 1
        else:
            outcome.kept.append(record.handle)
    else:
        outcome.imported += 1


async def _adopt(client: DaemonClient, record: HandleRecord, outcome: Outcome) -> None:
    try:
        await client.adopt(record)
    except InvalidInput as error:
        if (
            error.details.get("field") != "parameters" or not record.checkpoints
        ):  # else: too large for a frame
            raise
        await client.adopt(replace(record, checkpoints=(), changes=()))
        outcome.without_history.append(record.handle)


def _result(outcome: Outcome) -> Result:
    taken = words.count(outcome.imported, "handle") + " imported"
    parts = [taken]
    if outcome.replaced:
        parts.append(f"{outcome.replaced:,} replaced")
    if outcome.unchanged:
        parts.append(f"{outcome.unchanged:,} there already")
    blocks: list[Line | Rows] = [Line(", ".join(parts) + ".", "good")]
    if outcome.kept:
        shown = ", ".join(outcome.kept[:_SHOWN]) + (", ..." if len(outcome.kept) > _SHOWN else "")
        blocks.append(
            Line(
                f"{words.count(len(outcome.kept), 'handle')} stayed as here, with another state or in the "
                f"trash ({shown}); --replace saves over those that are live."
            )
        )
    if outcome.without_history:
        blocks.append(
            Line(f"Too large to bring the history along: {', '.join(outcome.without_history[:_SHOWN])}.")
        )
    errors: tuple[Problem, ...] = ()
    if outcome.refused:
        rows = tuple((refused.where, refused.reason) for refused in outcome.refused[:_SHOWN])
        blocks.append(Rows((Column("REFUSED"), Column("REASON", grows=True)), rows, empty=""))
        errors = (
            Problem("refused", f"{words.count(len(outcome.refused), 'handle')} could not be imported."),
        )
    return Result(
        "import",
        ExitCode.FAILED if outcome.refused else ExitCode.OK,
        data={
            "imported": outcome.imported,
            "replaced": outcome.replaced,
            "unchanged": outcome.unchanged,
            "kept": outcome.kept,
            "without_history": outcome.without_history,
            "refused": [{"where": item.where, "reason": item.reason} for item in outcome.refused],
        },
        blocks=tuple(blocks),
        errors=errors,
    )
