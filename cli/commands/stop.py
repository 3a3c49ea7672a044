"""`mcpstated stop`: end the daemon."""

from __future__ import annotations

import click

from mcpstated.cli.blocks import Line
from mcpstated.cli.options import Invocation, data_dir_option, json_option, pass_invocation
from mcpstated.cli.result import Result


@click.command("stop")
@json_option
@data_dir_option
@pass_invocation
def command(invocation: Invocation) -> Result:
    """Stop the daemon, and wait until it is gone.

    It finishes what it holds first. Clients that are still connected start it again with their next
    call; to keep it down, end them or set MCPSTATED_NO_SPAWN.
    """
    import trio

    from mcpstated.cli.retire import retire

    async def stop() -> int | None:
        return await retire(invocation.paths(), environ=invocation.environ(), reason="stopping")

    pid = trio.run(stop)
    if pid is None:
        return Result("stop", data={"stopped": None}, blocks=(Line("No daemon is running."),))
    return Result(
        "stop", data={"stopped": {"pid": pid}}, blocks=(Line(f"The daemon (pid {pid}) has stopped.", "good"),)
    )
