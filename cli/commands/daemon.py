"""`mcpstated daemon`: the daemon in the foreground."""

from __future__ import annotations

import os

import click

from mcpstated.cli.options import Invocation, data_dir_option, pass_invocation
from mcpstated.cli.settings import settings_of
from mcpstated.protocol.errors import McpStateError
from mcpstated.protocol.settings import LOG_LEVELS


@click.command("daemon")
@data_dir_option
@click.option(
    "--idle-seconds",
    type=float,
    metavar="N",
    help="Leave when alone for so long; 0 means never.  [env: MCPSTATED_IDLE_SECONDS; default: 900]",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    help="How much goes into the log.  [env: MCPSTATED_LOG_LEVEL; default: info]",
)
@click.option("--no-create", is_flag=True, hidden=True, help="Refuse to start if there is no store yet.")
@click.option(
    "--ready-fd", type=click.IntRange(min=0), hidden=True, help="Where to say that it is ready, or why not."
)
@pass_invocation
def command(
    invocation: Invocation,
    idle_seconds: float | None,
    log_level: str | None,
    no_create: bool,
    ready_fd: int | None,
) -> int:
    """Run the daemon in the foreground, until Ctrl-C or `mcpstated stop`.

    Clients start it by themselves, in the background; this is for services and for watching it work.
    """
    flags = {"data_dir": invocation.data_dir, "idle_seconds": idle_seconds, "log_level": log_level}
    try:
        settings = settings_of(invocation, flags)
    except McpStateError as error:
        if ready_fd is not None:  # whoever started it waits there for a reason
            os.write(ready_fd, f"failed: {' '.join(error.message.split())}\n".encode())
            os.close(ready_fd)
        raise
    from mcpstated.daemon.main import run_daemon

    return run_daemon(settings, ready_fd=ready_fd, creates_store=not no_create)
