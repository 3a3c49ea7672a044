"""Kills, at random moments: the daemon every few seconds, and now and then a client with its shim."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from random import Random

import trio

from mcpstated.cli.gone import wait_gone
from mcpstated.cli.selftest.client import ShimClient
from mcpstated.cli.selftest.tally import Tally
from mcpstated.cli.stage import Stage
from mcpstated.connection import open_client
from mcpstated.protocol.errors import McpStateError

_DAEMON_SECONDS = (0.2, 4.0)
_CLIENT_SECONDS = (3.0, 10.0)
_GONE_SECONDS = 10.0


async def kill_daemons(stage: Stage, tally: Tally, random: Random) -> None:
    """Kill the daemon of this store again and again, for ever."""
    while True:
        await trio.sleep(random.uniform(*_DAEMON_SECONDS))
        with contextlib.suppress(McpStateError):  # there is none just now
            tally.daemon_kills += await _kill_daemon(stage)


async def _kill_daemon(stage: Stage) -> bool:
    """Kill the daemon that answers; while it does, its process id cannot be another process's."""
    async with open_client(stage.paths, role="cli", environ=stage.environ, start=False) as client:
        pid = client.welcome.pid
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return await wait_gone(pid, timeout_seconds=_GONE_SECONDS)


async def kill_clients(clients: Sequence[ShimClient], tally: Tally, random: Random) -> None:
    """Kill one client after another, for ever."""
    while True:
        await trio.sleep(random.uniform(*_CLIENT_SECONDS))
        tally.client_kills += random.choice(clients).kill()
