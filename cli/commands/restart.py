"""`mcpstated restart`: replace the daemon by one of this installation."""

from __future__ import annotations

import click

from mcpstated.cli.blocks import Line
from mcpstated.cli.options import Invocation, data_dir_option, json_option, pass_invocation
from mcpstated.cli.result import Result
from mcpstated.cli.settings import settings_of


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

    from mcpstated.cli.replace import replace

    settings_of(invocation)  # what no daemon could start with must not cost the one that runs
    environ = invocation.environ()
    old_pid, daemon = trio.run(lambda: replace(invocation.paths(), environ=environ))
    data = {
        "stopped": None if old_pid is None else {"pid": old_pid},
        "daemon": {"pid": daemon.pid, "version": daemon.build, "instance": daemon.instance},
    }
    before = "No daemon was running." if old_pid is None else f"The daemon (pid {old_pid}) has stopped."
    now = f"Version {daemon.build} is running (pid {daemon.pid})."
    return Result("restart", data=data, blocks=(Line(before, "dim"), Line(now, "good")))
