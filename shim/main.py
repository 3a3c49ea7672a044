"""`mcpstated shim`: what an MCP client starts; builds the relay and runs it to its end.

Called by `mcpstated.cli.entry` before click is imported. Everything that is imported here at the top
is paid for by every client, all day: the standard library's small modules and msgpack, nothing else.
"""

from __future__ import annotations

import os

from mcpstated.launch import ensure_daemon, make_hello
from mcpstated.protocol.paths import paths_from_environment
from mcpstated.shim.descriptors import STDIN, take_over_stdout
from mcpstated.shim.output import Output
from mcpstated.shim.parent import ParentWatch
from mcpstated.shim.relay import Relay
from mcpstated.shim.signals import leave_at_once_on_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mcpstated.launch import DaemonLink

_OPTIONS = {"--data-dir": "MCPSTATED_DATA_DIR"}
_SHIM_ID_BYTES = 16


def environment_from(arguments: Sequence[str], environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return the environment with the options of `mcpstated shim` over it.

    Returns:
        None if there is anything but `--data-dir DIR`: the full command line then answers, with its
        help and its errors.
    """
    merged = dict(environ)
    words = list(arguments)
    while words:
        option, equals, value = words.pop(0).partition("=")
        if option not in _OPTIONS or (not equals and not words):
            return None
        merged[_OPTIONS[option]] = value if equals else words.pop(0)
    return merged


def main() -> int:
    """Run the shim as this process's environment says, and return its exit code."""
    return run_shim(os.environ)


def run_shim(environ: Mapping[str, str], *, command: Sequence[str] | None = None) -> int:
    """Relay between this process's standard input and output and the daemon until the client is gone.

    Args:
        environ: Says which store, which user and which writer.
        command: What to start instead of the daemon of this installation.

    Returns:
        The exit code, always 0: a client that closes its end is no failure.
    """
    leave_at_once_on_signals()
    output = Output(take_over_stdout())  # before anything is opened that could take a standard number
    parent = ParentWatch()
    shim_id = os.urandom(_SHIM_ID_BYTES)
    creates_store = True

    def find(timeout_seconds: float, on_wait: Callable[[], None]) -> DaemonLink:
        # All of it again each time: a directory or a daemon that was wrong may have been put right.
        nonlocal creates_store
        link = ensure_daemon(
            paths_from_environment(environ),
            make_hello("shim", environ=environ, shim_id=shim_id),
            timeout_seconds=timeout_seconds,
            environ=environ,
            command=command,
            creates_store=creates_store,
            on_wait=on_wait,
        )
        creates_store = False  # if it is gone later, somebody removed it: an empty one would hide that
        return link

    try:
        Relay(STDIN, output, parent, find).run()
    finally:
        output.close()
    return 0
