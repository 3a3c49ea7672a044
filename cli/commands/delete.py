"""`mcpstated delete`: end a handle."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from mcpstated.cli import words
from mcpstated.cli.blocks import Line
from mcpstated.cli.calls import call_daemon
from mcpstated.cli.escape import visible
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.options import (
    Invocation,
    data_dir_option,
    handle_argument,
    json_option,
    pass_invocation,
    user_option,
)
from mcpstated.cli.result import Problem, Result
from mcpstated.protocol.errors import HandleExpired

if TYPE_CHECKING:
    from mcpstated.answers import Loaded
    from mcpstated.connection import DaemonClient
    from mcpstated.protocol.store import Receipt


@click.command("delete")
@handle_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@user_option
@json_option
@data_dir_option
@pass_invocation
def command(invocation: Invocation, handle: str, yes: bool) -> Result:
    """Delete a handle and its state, for all clients; for some days `mcpstated trash` can bring it back."""
    if not yes and not _is_confirmed(invocation, handle):
        return Result("delete", ExitCode.FAILED, errors=(Problem("declined", "Nothing was deleted."),))

    async def delete(client: DaemonClient) -> Receipt:
        return await client.delete(handle)

    receipt = call_daemon(invocation, delete, start=True)
    return Result(
        "delete",
        data={
            "handle": receipt.info.handle,
            "is_deleted": receipt.is_deleted,
            "trash_until": words.iso(receipt.trash_until),
        },
        blocks=(Line(_text(receipt), "good"),),
    )


def _text(receipt: Receipt) -> str:
    handle = receipt.info.handle
    if receipt.trash_until is None:
        return f"{handle} is deleted for good."
    until = words.moment(receipt.trash_until)
    return f"{handle} is deleted. Until {until} this brings it back: mcpstated trash restore {handle}"


def _is_confirmed(invocation: Invocation, handle: str) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("This deletes and there is no terminal to ask on; say --yes if you mean it.")

    async def load(client: DaemonClient) -> Loaded:
        return await client.load(handle)

    what = handle
    with contextlib.suppress(HandleExpired):  # nothing can be read of it any more, but it can be deleted
        info = call_daemon(invocation, load, start=True).info
        title = f' "{info.title}"' if info.title else ""
        what = f"{info.handle}{title}, version {info.version}, {words.size(info.size_bytes)}"
    # On stderr: stdout is for the result.
    return click.confirm(f"Delete {visible(what)}?", default=False, err=True)
