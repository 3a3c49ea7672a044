"""Make a daemon leave, and wait until it has: what `stop`, `restart` and `restore` share."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from mcpstated.cli.gone import is_alive, wait_gone
from mcpstated.connection import open_client
from mcpstated.launch import DaemonNotRunning, VersionSkew
from mcpstated.locks import is_locked
from mcpstated.protocol.errors import DaemonUnavailable
from mcpstated.protocol.peers import peer_of

if TYPE_CHECKING:
    from mcpstated.protocol.paths import Paths

GONE_TIMEOUT_SECONDS = 45.0
"""A daemon finishes what it holds before it leaves, and cuts that short by itself before this."""
_ANSWER_SECONDS = 10.0
_LOOK_SECONDS = 0.5
"""How long to wait for a daemon that does not listen before looking whether it does by now."""
_NAME_SECONDS = 2.0
"""How long a daemon that has just taken the lock may need to write its process id beside it."""
_NAME_POLL_SECONDS = 0.05
_NOTE_BYTES = 256
_HINT = "See: mcpstated logs. Killing it is safe, for what it acknowledged is on the disk: kill -9 {pid}"


async def retire(paths: Paths, *, environ: Mapping[str, str], reason: str) -> int | None:
    """Ask the daemon to leave, and return its process id once it is gone; None if there is none.

    A daemon that speaks another protocol version cannot be asked, so it is sent SIGTERM, which means
    the same to it; the kernel says which process it is. One that no longer listens is leaving already
    and still flushes what it holds, and one that does not listen yet will: its lock tells that it is there.

    Args:
        reason: `stopping` or `upgrading`, as `DaemonClient.stop` takes it.

    Raises:
        DaemonUnavailable: It did not answer or did not leave in time.
    """
    now = trio.current_time()
    deadline, named_by = now + GONE_TIMEOUT_SECONDS, now + _NAME_SECONDS
    while (pid := await _tell(paths, environ=environ, reason=reason)) is None:
        if not is_locked(paths.lock):
            return None
        holder = _holder_of(paths.lock)
        if holder is None or not is_alive(holder):
            if trio.current_time() >= named_by:
                return None  # a daemon of another directory, whose database lies in this one
            await trio.sleep(_NAME_POLL_SECONDS)
        elif await wait_gone(holder, timeout_seconds=_LOOK_SECONDS):
            return holder
        elif trio.current_time() >= deadline:
            raise _stayed(holder)
    if not await wait_gone(pid, timeout_seconds=max(0.0, deadline - trio.current_time())):
        raise _stayed(pid)
    return pid


async def _tell(paths: Paths, *, environ: Mapping[str, str], reason: str) -> int | None:
    """Tell the daemon that listens to leave, and return its process id; None if nobody listens."""
    try:
        async with open_client(paths, role="cli", environ=environ, start=False) as client:
            pid = client.welcome.pid
            with trio.fail_after(_ANSWER_SECONDS), contextlib.suppress(DaemonUnavailable):
                await client.stop(reason)  # there is no answer if it was leaving already
    except DaemonNotRunning:
        return None
    except VersionSkew:
        return await trio.to_thread.run_sync(_terminate, paths.socket)
    except trio.TooSlowError:
        raise DaemonUnavailable(
            f"The daemon (pid {pid}) does not answer.",
            hint=_HINT.format(pid=pid),
        ) from None
    return pid


def _stayed(pid: int) -> DaemonUnavailable:
    return DaemonUnavailable(
        f"The daemon (pid {pid}) was to leave and has not, {GONE_TIMEOUT_SECONDS:g} s later.",
        hint=_HINT.format(pid=pid),
    )


def _holder_of(lock_path: str) -> int | None:
    """Return the process id that a daemon wrote into its lock file, `pid=N version=V`; None if none is there.

    It may be that of the daemon before, until the one that has just taken the lock writes its own.
    """
    try:
        fd = os.open(lock_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            note = os.read(fd, _NOTE_BYTES)
        finally:
            os.close(fd)
    except OSError:
        return None
    found = re.match(rb"pid=([1-9][0-9]{0,9}) ", note)
    return int(found[1]) if found else None


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
