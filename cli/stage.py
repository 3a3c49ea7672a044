"""Where the demo and the self-test play: a private directory with a daemon of its own, gone at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from mcpstated.answers import Status
from mcpstated.cli.retire import retire
from mcpstated.connection import open_client
from mcpstated.locks import is_locked
from mcpstated.protocol.paths import Paths

_CLEANUP_SECONDS = 20.0
_POLL_SECONDS = 0.02
_IDLE_SECONDS = "60"
"""If even the cleanup is killed, the daemon leaves by itself that much later."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A store that nobody else knows of."""

    paths: Paths
    environ: Mapping[str, str]
    """What everything that is started here gets, and nothing of the user's own settings."""

    async def status(self) -> Status:
        """Ask the daemon that runs here; never starts one."""
        async with open_client(self.paths, role="cli", environ=self.environ, start=False) as client:
            return await client.status()


@asynccontextmanager
async def private_stage(purpose: str, *, is_kept: Callable[[], bool] = lambda: False) -> AsyncIterator[Stage]:
    """Make the directory, and at the end stop the daemon in it and remove it, however the end came.

    Args:
        purpose: Part of the directory's name.
        is_kept: Asked at the end whether somebody should still look at the directory.
    """
    directory = tempfile.mkdtemp(prefix=f"mcpstated-{purpose}-")
    paths = Paths(str(Path(directory).resolve()))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MCPSTATE")}
    stage = Stage(
        paths, {**kept, "MCPSTATED_DATA_DIR": paths.data_dir, "MCPSTATED_IDLE_SECONDS": _IDLE_SECONDS}
    )
    try:
        yield stage
    finally:
        with trio.move_on_after(_CLEANUP_SECONDS, shield=True):
            await _end_daemon(stage)
        socket_dir = str(Path(paths.socket).parent)
        if socket_dir != paths.data_dir:  # the temporary directory has a long path
            shutil.rmtree(socket_dir, ignore_errors=True)
        if not is_kept():
            shutil.rmtree(directory, ignore_errors=True)


async def _end_daemon(stage: Stage) -> None:
    """Stop the daemon; the shims have ended by now.

    One that a shim was just starting does not listen yet. To start one too takes the same locks and so
    waits for it, and what is there afterwards can be asked to leave.
    """
    if await retire(stage.paths, environ=stage.environ, reason="stopping") is None:
        async with open_client(stage.paths, role="cli", environ=stage.environ, start=True):
            pass
        await retire(stage.paths, environ=stage.environ, reason="stopping")
    while is_locked(stage.paths.lock):
        await trio.sleep(_POLL_SECONDS)
