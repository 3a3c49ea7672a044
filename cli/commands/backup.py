"""`mcpstated backup`: a copy of the store, now."""

from __future__ import annotations

import time
from pathlib import Path

import click

from mcpstated.cli import words
from mcpstated.cli.blocks import Line
from mcpstated.cli.options import Invocation, data_dir_option, json_option, pass_invocation
from mcpstated.cli.refusals import refusals_as_errors
from mcpstated.cli.result import Result
from mcpstated.cli.settings import settings_of


@click.command("backup")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False))
@click.option("--replace", "replaces", is_flag=True, help="Write over FILE if it is there.")
@json_option
@data_dir_option
@pass_invocation
def command(invocation: Invocation, file: str | None, replaces: bool) -> Result:
    """Back the store up into FILE, or beside the daily backups; compressed unless FILE ends with .db.

    The copy is consistent while clients write, and examined before it gets its name.
    """
    from mcpstated.daemon.maintenance.backup import back_up, back_up_beside
    from mcpstated.daemon.maintenance.rotation import directory_of

    database = Path(settings_of(invocation).database)
    with refusals_as_errors(database):
        if file is None:
            backup = back_up_beside(database, directory_of(database), now=time.time())
        else:
            backup = back_up(database, Path(file).absolute(), may_replace=replaces)
    held = f"{words.count(backup.handles, 'handle')}, revision {backup.revision:,}"
    return Result(
        "backup",
        data={
            "path": backup.path,
            "size_bytes": backup.size_bytes,
            "revision": backup.revision,
            "handles": backup.handles,
        },
        blocks=(Line(f"{backup.path}: {held}, {words.size(backup.size_bytes)}, verified.", "good"),),
    )
