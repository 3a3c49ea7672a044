"""`mcpstated status`: one screen about the daemon, its store and its clients; never starts one."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from mcpstated.cli.blocks import Line
from mcpstated.cli.calls import call_daemon
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.failures import exit_code_of, problem_of
from mcpstated.cli.options import Invocation, data_dir_option, json_option, pass_invocation, user_option
from mcpstated.cli.result import Result
from mcpstated.cli.settings import settings_of
from mcpstated.cli.status_view import down_blocks, down_data, running_blocks, running_data
from mcpstated.protocol.errors import DaemonUnavailable

if TYPE_CHECKING:
    from mcpstated.answers import Status
    from mcpstated.connection import DaemonClient

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 5.0


@click.command("status")
@click.option(
    "-w", "--watch", is_flag=True, help="Keep the screen up to date until Ctrl-C, with the user's changes."
)
@user_option
@json_option
@data_dir_option
@pass_invocation
def command(invocation: Invocation, watch: bool) -> Result:
    """Show whether the daemon runs, what it holds and who is connected.

    Exits with 3 if none runs.
    """
    if watch:
        if invocation.as_json:
            raise click.UsageError("--watch has no end, so it cannot be one JSON object; leave out --json.")
        if not sys.stdout.isatty():
            raise click.UsageError("--watch needs a terminal.")
        from mcpstated.cli.status_watch import watch_status

        watch_status(invocation)
        return status_now(invocation)
    return status_now(invocation)


def status_now(invocation: Invocation) -> Result:
    """Return the status as it is now."""
    try:
        status = call_daemon(invocation, ask_status, start=False, connect_seconds=CONNECT_SECONDS)
    except DaemonUnavailable as error:
        return down(invocation, error)
    own_pid = os.getpid()
    return Result(
        "status",
        data=running_data(status, own_pid=own_pid),
        blocks=running_blocks(status, now_unix=time.time(), own_pid=own_pid),
    )


async def ask_status(client: DaemonClient) -> Status:
    """Ask for the status, and do not wait for ever.

    Raises:
        DaemonUnavailable: The answer did not come in time.
    """
    import trio

    with trio.move_on_after(ANSWER_SECONDS):
        return await client.status()
    raise DaemonUnavailable(
        f"The daemon (pid {client.welcome.pid}) did not answer within {ANSWER_SECONDS:g} s.",
        hint="Look at its log with: mcpstated logs",
    )


def down(invocation: Invocation, error: DaemonUnavailable) -> Result:
    """Return the result for a daemon that is not there, does not answer or speaks another version."""
    settings = settings_of(invocation)
    problem = problem_of(error)
    is_absent = exit_code_of(error) == ExitCode.DAEMON_NOT_RUNNING
    headline = "No daemon is running." if is_absent else problem.message
    blocks = down_blocks(settings, headline=headline, environ=invocation.environ())
    if not is_absent:  # one is there, so how it would start is beside the point
        blocks = (*blocks[:-1], *([Line(f"\n{problem.hint}", "dim")] if problem.hint else []))
    return Result("status", exit_code_of(error), down_data(settings), blocks, (problem,))
