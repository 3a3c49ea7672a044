"""Daemons as processes of their own that need no start of an interpreter: forks of one that is loaded.

For tests that need dozens of daemons, each with an environment of its own. From the command line on such a
process does what every daemon does; only the way to there is shorter.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import trio

from support.mcp_client import starting_environment

_CONTEXT = multiprocessing.get_context("forkserver")
_LOADED = ["mcpstated.cli.main", "mcpstated.cli.commands.daemon", "mcpstated.daemon.main", "pytest"]
"""With pytest, because each process imports the program that it comes from."""
_CONTEXT.set_forkserver_preload(_LOADED)


class ForkedDaemon:
    """One daemon, and how it ended."""

    def __init__(self, process: ForkServerProcess, ready: Connection) -> None:
        self._process = process
        self._ready = ready

    @property
    def pid(self) -> int:
        """Its process id, from the start to `close`."""
        pid = self._process.pid
        assert pid is not None
        return pid

    async def serves(self) -> bool:
        """Return True when it accepts connections, False when it has ended before."""
        await trio.lowlevel.wait_readable(self._ready.fileno())
        return os.read(self._ready.fileno(), 1000) == b"ready\n"

    async def exit_code(self) -> int:
        """Wait for its end; that a signal ended it is a negative number."""
        await trio.lowlevel.wait_readable(self._process.sentinel)
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        return code

    def kill(self) -> None:
        """Kill it, and return when it is gone."""
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """Kill it if it runs, and let nothing of it remain here."""
        self.kill()
        self._process.close()
        self._ready.close()


@contextmanager
def forked_daemon(data_dir: Path, **more: str) -> Iterator[ForkedDaemon]:
    """Start a daemon for a directory; it is killed when the block is left.

    Args:
        more: Variables beside those that a client hands on.
    """
    ready, said = _CONTEXT.Pipe(duplex=False)
    environ = starting_environment(data_dir, **more)
    process = _CONTEXT.Process(target=_run, args=(environ, said))
    process.start()
    said.close()
    daemon = ForkedDaemon(process, ready)
    try:
        yield daemon
    finally:
        daemon.close()


def _run(environ: Mapping[str, str], said: Connection) -> None:
    """Be the daemon."""
    os.environ.clear()
    os.environ.update(environ)
    from mcpstated.cli.main import program

    sys.exit(program.main(["daemon", "--ready-fd", str(said.fileno())], standalone_mode=False))
