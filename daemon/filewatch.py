"""Noticing that the files under the daemon are no longer the ones that it opened.

A socket that somebody removed is bound again. A database, lock or directory that was removed or
replaced ends the daemon: nothing may be acknowledged into a file that nobody can find again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from mcpstated.daemon.backends.place import Place
from mcpstated.daemon.logs import log_event
from mcpstated.protocol.errors import McpStateError
from mcpstated.protocol.messages import STOPPING

if TYPE_CHECKING:
    from mcpstated.daemon.listener import Listener
    from mcpstated.daemon.lock import FileLock
    from mcpstated.daemon.stopping import Stop

log = logging.getLogger("mcpstated.filewatch")

_INTERVAL_SECONDS = 1.0


async def watch_files(*, database: str, lock: FileLock, listener: Listener, stop: Stop) -> None:
    """Look once a second until the daemon must leave."""
    place = Place(database)
    place.remember()
    while True:
        await trio.sleep(_INTERVAL_SECONDS)
        if stop.is_requested:
            return
        if not lock.is_current:
            failure = "The data directory was removed or replaced under the daemon."
        elif changed := place.what_changed():
            failure = f"The file {changed} was removed or replaced under the daemon."
        elif not listener.is_in_place:
            try:
                listener.bind()
            except McpStateError as error:
                failure = error.message
            else:
                log_event(log, "warning", "socket was bound again")
                continue
        else:
            continue
        log_event(log, "error", "files changed under the daemon", reason=failure)
        stop.request(STOPPING, cause="files", failure=failure)
