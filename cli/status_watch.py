"""The live status screen: drawn anew when the store changes, and once a second.

    screen: ask for the status -> draw -> wait for a change or a second
    events: collect changes -> wake the screen

Without a daemon it says so, and looks again once a second; it never starts one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from mcpstated.cli.blocks import Block, Line
from mcpstated.cli.commands.status import CONNECT_SECONDS, ask_status, down
from mcpstated.cli.render import console_for, renderable
from mcpstated.cli.status_view import CHANGES_SHOWN, changes_blocks, running_blocks
from mcpstated.connection import DaemonClient, open_client
from mcpstated.protocol.errors import DaemonUnavailable, McpStateError
from mcpstated.watch import Watch, WatchLagged

if TYPE_CHECKING:
    from mcpstated.answers import Change
    from mcpstated.cli.options import Invocation

_REFRESH_SECONDS = 1.0
_LEAST_SECONDS = 0.1
"""However fast the store changes, the screen is drawn no more often than this."""

Draw = Callable[[tuple[Block, ...]], None]


def watch_status(invocation: Invocation) -> None:
    """Show the live screen until Ctrl-C."""
    from rich.console import Group
    from rich.live import Live

    console = console_for(sys.stdout)
    with Live(
        console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:

        def draw(blocks: tuple[Block, ...]) -> None:
            ending = Line("\nCtrl-C ends this.", "dim")
            parts = [renderable(block, console.width) for block in (*blocks, ending)]
            live.update(Group(*parts), refresh=True)

        trio.run(_until_interrupted, invocation, draw)


async def _until_interrupted(invocation: Invocation, draw: Draw) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_store, invocation, draw)
            async for _ in signals:
                break
            nursery.cancel_scope.cancel()


async def watch_store(invocation: Invocation, draw: Draw) -> None:
    """Draw the status of one store for ever, whatever becomes of its daemon."""
    changes: deque[Change] = deque(maxlen=CHANGES_SHOWN)
    paths, environ = invocation.paths(), invocation.environ()
    while True:
        try:
            async with open_client(
                paths, role="cli", environ=environ, start=False, timeout_seconds=CONNECT_SECONDS
            ) as client:
                await _watch_daemon(client, changes, draw)
        except DaemonUnavailable as error:
            draw(down(invocation, error).blocks)
            await trio.sleep(_REFRESH_SECONDS)
        except WatchLagged:
            continue  # the changes shown have a gap; the status is read anew


async def _watch_daemon(client: DaemonClient, changes: deque[Change], draw: Draw) -> None:
    """Draw until the connection ends.

    Raises:
        DaemonUnavailable, WatchLagged: How it ended.
    """
    wake = _Wake()
    async with client.watch() as watch, trio.open_nursery() as nursery:
        nursery.start_soon(_collect, watch, changes, wake)
        failure: McpStateError | None = None
        while failure is None and wake.ended is None:
            try:
                status = await ask_status(client)
            except McpStateError as error:
                failure = error
                break
            now, own_pid = time.time(), os.getpid()
            draw(
                (
                    *running_blocks(status, now_unix=now, own_pid=own_pid),
                    *changes_blocks(changes, now_unix=now),
                )
            )
            await trio.sleep(_LEAST_SECONDS)
            with trio.move_on_after(_REFRESH_SECONDS - _LEAST_SECONDS):
                await wake.wait()
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if wake.ended is not None:
        raise wake.ended


async def _collect(watch: Watch, changes: deque[Change], wake: _Wake) -> None:
    try:
        async for change in watch:
            changes.append(change)
            wake.set()
    except (WatchLagged, McpStateError) as error:
        wake.ended = error
        wake.set()


class _Wake:
    """An event that is used up by whoever waited for it."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self.ended: Exception | None = None
        """Why no more changes come."""

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = trio.Event()
