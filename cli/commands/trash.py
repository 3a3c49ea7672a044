"""`mcpstated trash`: what was deleted and can be brought back, by the person and by nobody else."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from mcpstated.cli import words
from mcpstated.cli.blocks import Column, Line, Rows
from mcpstated.cli.calls import call_daemon
from mcpstated.cli.escape import visible
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.handles import handle_data, handle_fields
from mcpstated.cli.options import Invocation, data_dir_option, json_option, pass_invocation, user_option
from mcpstated.cli.result import Problem, Result

if TYPE_CHECKING:
    from mcpstated.connection import DaemonClient
    from mcpstated.protocol.store import Receipt, Trashed


@click.group("trash")
def command() -> None:
    """Deleted handles: list them, bring one back, or remove them for good.

    A handle that a client or `mcpstated delete` deletes stays here for 7 days (limits.trash_days).
    """


@command.command("list")
@user_option
@json_option
@data_dir_option
@pass_invocation
def list_command(invocation: Invocation) -> Result:
    """List deleted handles, the last deleted first."""

    async def trash(client: DaemonClient) -> tuple[Trashed, ...]:
        return await client.trash()

    found = call_daemon(invocation, trash, start=True)
    return Result(
        "trash",
        data={
            "handles": [
                {
                    **handle_data(trashed.info),
                    "deleted_at": words.iso(trashed.deleted_at),
                    "trash_until": words.iso(trashed.trash_until),
                }
                for trashed in found
            ]
        },
        blocks=(_table(found, now_unix=time.time()),),
    )


@command.command("restore")
@click.argument("handle", metavar="HANDLE")
@user_option
@json_option
@data_dir_option
@pass_invocation
def restore_command(invocation: Invocation, handle: str) -> Result:
    """Bring a deleted handle back, with its state and its history."""

    async def undelete(client: DaemonClient) -> Receipt:
        return await client.undelete(handle)

    info = call_daemon(invocation, undelete, start=True).info
    return Result(
        "trash",
        data=handle_data(info),
        blocks=(Line(f"{info.handle} is back.", "good"), handle_fields(info, now_unix=time.time())),
    )


@command.command("empty")
@click.argument("handle", metavar="[HANDLE]", required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@user_option
@json_option
@data_dir_option
@pass_invocation
def empty_command(invocation: Invocation, handle: str | None, yes: bool) -> Result:
    """Remove one deleted handle, or all of them, for good."""
    what = handle or "everything in the trash"
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "This removes for good and there is no terminal to ask on; say --yes if you mean it."
            )
        if not click.confirm(f"Remove {visible(what)} for good?", default=False, err=True):
            return Result("trash", ExitCode.FAILED, errors=(Problem("declined", "Nothing was removed."),))

    async def empty(client: DaemonClient) -> int:
        return await client.empty_trash(handle)

    removed = call_daemon(invocation, empty, start=True)
    text = f"{removed:,} deleted {'handle is' if removed == 1 else 'handles are'} gone for good."
    return Result("trash", data={"removed": removed}, blocks=(Line(text, "good"),))


def _table(found: tuple[Trashed, ...], *, now_unix: float) -> Rows:
    columns = (
        Column("HANDLE"),
        Column("TITLE", grows=True),
        Column("DELETED"),
        Column("BY", rank=2),
        Column("SIZE", is_number=True, rank=1),
        Column("GONE"),
    )
    rows = tuple(
        (
            trashed.info.handle,
            trashed.info.title or trashed.info.outline,
            words.ago(trashed.deleted_at, now_unix),
            trashed.info.last_writer,
            words.size(trashed.info.size_bytes),
            words.until(trashed.trash_until, now_unix),
        )
        for trashed in found
    )
    return Rows(columns, rows, empty="The trash is empty.")
