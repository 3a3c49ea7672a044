"""How the demo tells what happens, as it happens.

3  Both append at the same moment
   claude-desktop  state_patch    2.1 ms  version 23
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mcpstated.cli.escape import visible
from mcpstated.cli.render import console_for, print_block, print_trimmed

if TYPE_CHECKING:
    from mcpstated.cli.blocks import Block
    from mcpstated.cli.demo.actor import Reply

_NAME_WIDTH = 14
_TOOL_WIDTH = 11
_TIME_WIDTH = 8
_INDENT = 3
_WIDEST = 120


class Narrator:
    """Prints the demo; every text it is given is shown as it is, never as markup."""

    def __init__(self) -> None:
        self._console = console_for(sys.stdout)
        self._console.width = min(self._console.width, _WIDEST)
        self._number = 0

    def title(self, text: str, below: str) -> None:
        """Print the first lines."""
        self._console.print(Text(visible(text), style="bold"))
        self._console.print(Text(visible(below), style="dim"))

    def chapter(self, text: str) -> None:
        """Begin the next step of the story."""
        self._number += 1
        self._console.print()
        self._console.print(Text.assemble((f"{self._number}  ", "bold cyan"), (visible(text), "bold")))

    def call(self, reply: Reply, outcome: str) -> None:
        """Tell of one tool call: who, which tool, how long, and what came back."""
        self._row(reply.who, reply.tool, took(reply.seconds), outcome, "yellow" if reply.is_error else "")

    def calls(self, who: str, tool: str, seconds: Sequence[float], outcome: str) -> None:
        """Tell of many calls at once; the time is the middle one's."""
        middle = sorted(seconds)[len(seconds) // 2]
        self._row(who, tool, took(middle), outcome, "")

    def event(self, who: str, text: str, seconds: float | None = None) -> None:
        """Tell of something that is no tool call."""
        self._row(who, "", took(seconds) if seconds is not None else "", text, "")

    def verdict(self, text: str) -> None:
        """Say what the step has shown."""
        print_trimmed(self._console, Padding(Text(visible(text), style="green"), (0, 0, 0, _INDENT)))

    def blocks(self, blocks: Sequence[Block]) -> None:
        """Print what a command would print."""
        for block in blocks:
            print_block(self._console, block)

    def space(self) -> None:
        """Leave a line free."""
        self._console.print()

    def _row(self, who: str, tool: str, time: str, outcome: str, style: str) -> None:
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_column(width=_NAME_WIDTH, no_wrap=True)
        row.add_column(width=_TOOL_WIDTH, no_wrap=True)
        row.add_column(width=_TIME_WIDTH, no_wrap=True, justify="right")
        row.add_column(overflow="fold")
        row.add_row(
            Text(visible(who)),
            Text(tool, style="cyan"),
            Text(time, style="dim"),
            Text(visible(outcome), style=style),
        )
        print_trimmed(self._console, Padding(row, (0, 0, 0, _INDENT)))


def took(seconds: float) -> str:
    """Return a duration in milliseconds: `0.84 ms`, `312 ms`."""
    milliseconds = seconds * 1000
    return f"{milliseconds:.0f} ms" if milliseconds >= 100 else f"{milliseconds:.1f} ms"
