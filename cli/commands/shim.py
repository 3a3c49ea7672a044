"""`mcpstated shim`: what an MCP client starts.

`cli.entry` runs the shim before click is imported when the first word is `shim`; this file makes it
appear in the help, and serves a command line with options before that word.
"""

from __future__ import annotations

import click

from mcpstated.cli.options import Invocation, data_dir_option, pass_invocation, user_option


@click.command("shim")
@user_option
@data_dir_option
@pass_invocation
def command(invocation: Invocation) -> int:
    """Relay one MCP client's stdio to the daemon.

    This is the command to put into a client's configuration. It starts the daemon if none runs.
    """
    from mcpstated.shim.main import run_shim

    return run_shim(invocation.environ())
