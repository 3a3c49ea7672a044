"""`mcpstated restart`: replace the daemon by one of this installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcpstated.cli.blocks import Line
from mcpstated.cli.options import Invocation, data_dir_option, json_option, pass_invocation
from mcpstated.cli.result import Result

if TYPE_CHECKING:
    from mcpstated.protocol.messages import Welcome


@click.command("restart")
@json_option
@data_dir_option
@pass_invocation
def command(invocation: Invocation) -> Result:
    """Stop the daemon and start it anew, with this version; start it if none runs.

    Connected clients move to the new one without losing a call.
    """
    if invocation.environ().get("MCPSTATED_NO_SPAWN"):
        raise click.UsageError(
            "MCPSTATED_NO_SPAWN is set, so the daemon would be stopped and not started again. "
            "Use `mcpstated stop`, or unset it."
        )
    import trio

    from mcpstated.cli.retire import retire
    from mcpstated.connection import open_client

    async def restart() -> tuple[int | None, Welcome]:
        paths, environ = invocation.paths(), invocation.environ()
        old_pid = await retire(paths, environ=environ, reason="upgrading")
        async with open_client(paths, role="cli", environ=environ, start=True) as client:
            return old_pid, client.welcome

    old_pid, daemon = trio.run(restart)
    data = {
        "stopped": None if old_pid is None else {"pid": old_pid},
        "daemon": {"pid": daemon.pid, "version": daemon.build, "instance": daemon.instance},
    }
    before = "No daemon was running." if old_pid is None else f"The daemon (pid {old_pid}) has stopped."
    now = f"Version {daemon.build} is running (pid {daemon.pid})."
    return Result("restart", data=data, blocks=(Line(before, "dim"), Line(now, "good")))
