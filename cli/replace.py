"""Replace the daemon that runs by one of this installation, with nobody else starting one in between.

    take the start lock --> the old one leaves --> start the new one --> give the lock back

A shim of an older installation that loses its daemon looks for the next one at once. Without the lock it
would start one of its own installation, and that one would stay, or be refused by a store that is newer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from mcpstated.cli.retire import GONE_TIMEOUT_SECONDS, retire
from mcpstated.launch import ensure_daemon, make_hello
from mcpstated.locks import StartLock
from mcpstated.protocol.directories import make_private_directory
from mcpstated.protocol.errors import DaemonUnavailable

if TYPE_CHECKING:
    from mcpstated.protocol.messages import Welcome
    from mcpstated.protocol.paths import Paths

START_SECONDS = 30.0
"""How long the new daemon may take to start; bringing a large store to a newer schema is part of it."""
_LOCK_POLL_SECONDS = 0.02


async def replace(paths: Paths, *, environ: Mapping[str, str]) -> tuple[int | None, Welcome]:
    """Return the process id of the daemon that has left, None if there was none, and the new one's greeting.

    Raises:
        DaemonUnavailable: The old one did not leave or the new one did not start; the text says which.
    """
    make_private_directory(paths.data_dir)
    async with _starting(paths.start_lock) as lock:
        old_pid = await retire(paths, environ=environ, reason="upgrading")
        return old_pid, await trio.to_thread.run_sync(_start, paths, environ, lock)


@asynccontextmanager
async def _starting(path: str) -> AsyncIterator[StartLock]:
    """Hold the start lock; whoever holds it is starting a daemon, or is one that leaves."""
    deadline = trio.current_time() + GONE_TIMEOUT_SECONDS
    while (lock := StartLock.try_acquire(path)) is None:
        if trio.current_time() >= deadline:
            raise DaemonUnavailable("Somebody has been starting a daemon all the time. Try again.", hint=path)
        await trio.sleep(_LOCK_POLL_SECONDS)
    try:
        yield lock
    finally:
        lock.release()


def _start(paths: Paths, environ: Mapping[str, str], lock: StartLock) -> Welcome:
    link = ensure_daemon(
        paths,
        make_hello("cli", environ=environ),
        timeout_seconds=START_SECONDS,
        environ=environ,
        start_lock=lock,
    )
    link.sock.close()
    return link.welcome
