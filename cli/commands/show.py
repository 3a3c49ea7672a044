"""`mcpstated show`: one state, whole or a part of it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from mcpstated.cli.blocks import JsonText, Line
from mcpstated.cli.calls import call_daemon
from mcpstated.cli.handles import handle_data, handle_fields
from mcpstated.cli.options import (
    Invocation,
    data_dir_option,
    handle_argument,
    json_option,
    pass_invocation,
    user_option,
)
from mcpstated.cli.result import Result

if TYPE_CHECKING:
    from mcpstated.answers import Loaded
    from mcpstated.connection import DaemonClient


@click.command("show")
@handle_argument
@click.option(
    "--path",
    metavar="PATH",
    help="Only the part there: dotted (sources.0 is a key), or a JSON Pointer (/sources/0).",
)
@click.option(
    "--version",
    type=click.IntRange(1, 2**63 - 1),
    metavar="N",
    help="An older version, as far as history goes.",
)
@user_option
@json_option
@data_dir_option
@pass_invocation
def command(invocation: Invocation, handle: str, path: str | None, version: int | None) -> Result:
    """Show a handle and the state behind it."""

    async def load(client: DaemonClient) -> Loaded:
        return await client.load(handle, path=path, version=version)

    loaded = call_daemon(invocation, load, start=True)
    data: dict[str, object] = {**handle_data(loaded.info), "state": loaded.state}
    if path is not None:
        data["path"] = path
    return Result(
        "show",
        data=data,
        blocks=(
            handle_fields(loaded.info, now_unix=time.time()),
            Line(f"\nstate at {path}:" if path else "\nstate:", "dim"),
            JsonText(json.dumps(loaded.state, ensure_ascii=False, indent=2)),
        ),
    )
