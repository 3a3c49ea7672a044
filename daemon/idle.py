"""Leaving when nobody is there, without ever letting anybody down.

The exit happens under the start lock, which whoever starts a daemon takes too: first the backlog is
served, then the socket leaves its path, then the backlog is looked at once more. Whoever connects
later finds nothing, waits for the lock, and gets a new daemon after this one is gone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from mcpstated.daemon.logs import log_event
from mcpstated.protocol.messages import STOPPING

if TYPE_CHECKING:
    from mcpstated.daemon.listener import Listener
    from mcpstated.daemon.lock import FileLock
    from mcpstated.daemon.sessions import Sessions
    from mcpstated.daemon.stopping import Stop

log = logging.getLogger("mcpstated.idle")

_RETRY_SECONDS = 1.0


async def watch_idleness(
    *, idle_seconds: float, sessions: Sessions, listener: Listener, start_lock: FileLock, stop: Stop
) -> None:
    """Request a stop once there were no connections for `idle_seconds`; then keep the start lock."""
    while True:
        if listener.connections:
            with trio.move_on_after(_RETRY_SECONDS):
                await sessions.changed()
            continue
        with trio.move_on_after(idle_seconds) as patience:
            await sessions.changed()
        if not patience.cancelled_caught or listener.connections:
            continue
        if not start_lock.try_acquire():
            await trio.sleep(_RETRY_SECONDS)
            continue
        if listener.accept_waiting():
            start_lock.release()
            continue
        listener.unlink()
        if listener.accept_waiting():
            listener.bind()
            start_lock.release()
            continue
        log_event(log, "info", "nobody was here", idle_seconds=idle_seconds)
        stop.request(STOPPING, cause="idle")
        return
