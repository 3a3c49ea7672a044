"""The live status screen: it follows the store, and the daemon's going and coming."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from mcpstated.cli.blocks import Block, Line, Rows
from mcpstated.cli.options import Invocation
from mcpstated.cli.status_view import CHANGES_SHOWN
from mcpstated.cli.status_watch import watch_store
from mcpstated.connection import open_client
from support.daemons import daemon_in


class Screen:
    """What was drawn last, and a way to wait until it shows something."""

    def __init__(self) -> None:
        self.text = ""
        self.rows: list[tuple[str, ...]] = []
        self._drawn = trio.Event()

    def draw(self, blocks: tuple[Block, ...]) -> None:
        self.text = "".join(block.text for block in blocks if isinstance(block, Line))
        self.rows = [row for block in blocks if isinstance(block, Rows) for row in block.rows]
        self._drawn.set()
        self._drawn = trio.Event()

    async def shows(self, text: str) -> None:
        """Wait until the text, or a row with that cell, is on the screen."""
        with trio.fail_after(20):
            while text not in self.text and not any(text in row for row in self.rows):
                await self._drawn.wait()


@asynccontextmanager
async def live_screen(data_dir: Path) -> AsyncIterator[Screen]:
    screen = Screen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_store, Invocation(data_dir=str(data_dir)), screen.draw)
        yield screen
        nursery.cancel_scope.cancel()


async def test_a_change_is_on_the_screen_with_the_newest_first(data_dir: Path) -> None:
    """The screen shows what the clients do while they do it."""
    async with daemon_in(data_dir) as daemon, live_screen(data_dir) as screen:
        await screen.shows("No client is connected.")
        async with open_client(daemon.settings.paths, role="library", environ={}, start=False) as client:
            await screen.shows("1 session")
            handles = [(await client.mint("k", {})).info.handle for _ in range(CHANGES_SHOWN + 2)]
            await screen.shows(handles[-1])
            await screen.shows(handles[2])
            changed = [row[2] for row in screen.rows if len(row) > 2 and row[1] == "mint"]

    assert changed == handles[:1:-1]


async def test_the_screen_lives_through_the_daemon_s_end_and_its_return(data_dir: Path) -> None:
    """A restart, a crash or an idle exit is something to see, not something that ends the screen."""
    async with live_screen(data_dir) as screen:
        await screen.shows("No daemon is running.")
        for _ in range(2):
            async with daemon_in(data_dir):
                await screen.shows("is running: pid")
            await screen.shows("No daemon is running.")
