"""The entry of the command `mcpstated`: the shim goes its own, short way.

A client starts `mcpstated shim` for every conversation and waits for it, so neither click nor anything
else of the command line is imported for it; and it must end quietly on signals from the very start.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process and return its exit code."""
    if sys.argv[1:2] == ["shim"]:
        from mcpstated.shim.signals import leave_at_once_on_signals

        leave_at_once_on_signals()
        import os

        from mcpstated.shim.main import environment_from, run_shim

        environ = environment_from(sys.argv[2:], os.environ)
        if environ is not None:
            return run_shim(environ)
    from mcpstated.cli.main import main as run_command_line

    return run_command_line()
