"""The entry of the command `mcpstated`: the shim goes its own, short way.

A client starts `mcpstated shim` for every conversation and waits for it, so neither click nor anything
else of the command line is imported for it; and it must end quietly on signals from the very start.
A process that was the daemon ends here, at once.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_DAEMON = "mcpstated.daemon.main"
"""Imported by the command that runs the daemon, and by nothing else."""


def main() -> int:
    """Run the command line of this process and return its exit code.

    Does not return if the process was the daemon.
    """
    if sys.argv[1:2] == ["shim"]:
        from mcpstated.shim.signals import leave_at_once_on_signals

        leave_at_once_on_signals()
        import os

        from mcpstated.shim.main import environment_from, run_shim

        environ = environment_from(sys.argv[2:], os.environ)
        if environ is not None:
            return run_shim(environ)
    from mcpstated.cli.main import main as run_command_line

    code = run_command_line()
    if _DAEMON in sys.modules:
        _end_at_once(code)
    return code


def _end_at_once(code: int) -> NoReturn:
    """End the process without taking the interpreter down in order.

    Everything is on disk by now, and freeing what the daemon held would only keep people waiting.
    """
    import contextlib
    import os

    for stream in (sys.stdout, sys.stderr):
        # It may never have been there, have no reader any more, or be closed.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)
