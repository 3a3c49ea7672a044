"""Make a daemon leave, and wait until it has: what `stop` and `restart` share."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from mcpstated.cli.gone import wait_gone
from mcpstated.connection import open_client
from mcpstated.launch import DaemonNotRunning, VersionSkew
from mcpstated.protocol.errors import DaemonUnavailable
from mcpstated.protocol.peers import peer_of

if TYPE_CHECKING:
    from mcpstated.protocol.paths import Paths

GONE_TIMEOUT_SECONDS = 45.0
"""A daemon finishes what it holds before it leaves, and cuts that short by itself before this."""
_ANSWER_SECONDS = 10.0
_HINT = "See: mcpstated logs. Killing it is safe, for what it acknowledged is on the disk: kill -9 {pid}"


async def retire(paths: Paths, *, environ: Mapping[str, str], reason: str) -> int | None:
    """Ask the daemon to leave, and return its process id once it is gone; None if there is none.

    A daemon that speaks another protocol version cannot be asked, so it is sent SIGTERM, which means
    the same to it; the kernel says which process it is.

    Args:
        reason: `stopping` or `upgrading`, as `DaemonClient.stop` takes it.

    Raises:
        DaemonUnavailable: It did not answer or did not leave in time.
    """
    try:
        async with open_client(paths, role="cli", environ=environ, start=False) as client:
            pid = client.welcome.pid
            with trio.fail_after(_ANSWER_SECONDS), contextlib.suppress(DaemonUnavailable):
                await client.stop(reason)  # there is no answer if it was leaving already
    except DaemonNotRunning:
        return None
    except VersionSkew:
        found = await trio.to_thread.run_sync(_terminate, paths.socket)
        if found is None:
            return None
        pid = found
    except trio.TooSlowError:
        raise DaemonUnavailable(
            f"The daemon (pid {pid}) does not answer.",
            hint=_HINT.format(pid=pid),
        ) from None
    if not await wait_gone(pid, timeout_seconds=GONE_TIMEOUT_SECONDS):
        raise DaemonUnavailable(
            f"The daemon (pid {pid}) was told to leave and has not, {GONE_TIMEOUT_SECONDS:g} s later.",
            hint=_HINT.format(pid=pid),
        )
    return pid


def _terminate(socket_path: str) -> int | None:
    """Send SIGTERM to the process that listens on a socket, and return its id; None if nobody does."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_ANSWER_SECONDS)
        try:
            probe.connect(socket_path)
            peer = peer_of(probe)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
    if peer.uid != os.getuid() or peer.pid == 0:
        raise DaemonUnavailable("The process behind the socket cannot be told, so it is left alone.")
    with contextlib.suppress(ProcessLookupError):
        os.kill(peer.pid, signal.SIGTERM)
    return peer.pid
