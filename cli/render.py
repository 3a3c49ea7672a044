"""The one place that prints: a result as text for people, or as its envelope.

Colour only where a terminal is and NO_COLOR is not set (rich looks after both). No text from a result is
ever taken as markup, and control characters in it are written out. Errors go to stderr; the envelope
goes to stdout whatever happened, in UTF-8 whatever the locale.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from mcpstated.cli.blocks import Block, Column, Fields, JsonText, Line, Rows, Verbatim
from mcpstated.cli.envelope import envelope_text
from mcpstated.cli.escape import json_visible, visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from mcpstated.cli.result import Problem, Result

PIPE_WIDTH = 120
"""Columns where no terminal says how many there are."""
_GAP = 2
_GROWING_WIDTH = 24
_HIGHLIGHT_MAX_CHARS = 65_536
_STYLES = {"plain": "", "good": "green", "bad": "red", "dim": "dim", "strong": "bold"}


def render(result: Result, *, as_json: bool) -> None:
    """Print a result on the standard streams.

    Blocks tell people the whole story; errors are printed where there are none.
    """
    if as_json:
        _write_utf8(sys.stdout, envelope_text(result))
        return
    if result.blocks:
        console = console_for(sys.stdout)
        for block in result.blocks:
            print_block(console, block)
    else:
        for problem in result.errors:
            _print_problem(console_for(sys.stderr), problem)


def console_for(stream: TextIO) -> Console:
    """Return a console that takes nothing as markup and fails on no character."""
    from rich.console import Console  # 50 ms that --json and --help need not pay

    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def print_block(console: Console, block: Block) -> None:
    """Print one block."""
    if isinstance(block, Verbatim):
        console.file.write(_verbatim(block) + "\n")  # past rich, which would turn tabs into spaces
    elif isinstance(block, JsonText):
        console.print(renderable(block, console.width), soft_wrap=True)
    else:
        print_trimmed(console, renderable(block, console.width))


def print_trimmed(console: Console, shown: RenderableType) -> None:
    """Print something; in a pipe without the spaces that rich fills the lines of a table with."""
    if console.is_terminal:
        console.print(shown)
        return
    with console.capture() as printed:
        console.print(shown)
    console.file.write("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()))


def renderable(block: Block, width: int) -> RenderableType:
    """Return a block as rich shows it within that many columns."""
    from rich.text import Text

    match block:
        case Line(text, tone):
            return Text(visible(text, keep_layout=True), style=_STYLES[tone])
        case Verbatim():
            return Text(_verbatim(block))
        case Fields():
            return _fields(block)
        case Rows():
            return _rows(block, width) if block.rows else Text(visible(block.empty), style="dim")
        case JsonText(text):
            return _json(text)


def _verbatim(block: Verbatim) -> str:
    return visible(block.text, keep_layout=True).removesuffix("\n")


def _fields(block: Fields) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, _GAP, 0, 0), title_justify="left")
    if block.title:
        table.title = Text(visible(block.title), style="bold not italic")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in block.rows:
        table.add_row(Text(visible(name)), Text(visible(value)))
    return table


def _rows(block: Rows, width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    shown = fitting_columns(block, width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim", title_justify="left")
    if block.title:
        table.title = Text(visible(block.title), style="bold not italic")
    for index in shown:
        column = block.columns[index]
        table.add_column(
            Text(column.name),
            justify="right" if column.is_number else "left",
            no_wrap=True,
            overflow="ellipsis" if column.grows else "fold",
            ratio=1 if column.grows else None,
        )
    table.expand = any(block.columns[index].grows for index in shown)
    for row in block.rows:
        table.add_row(*(Text(visible(row[index])) for index in shown))
    return table


def fitting_columns(block: Rows, width: int) -> list[int]:
    """Return the indexes of the columns that fit; those of the highest rank are left out first."""
    from rich.cells import cell_len

    def needed(index: int, column: Column) -> int:
        cells = (cell_len(visible(row[index])) for row in block.rows)
        natural = max([cell_len(column.name), *cells])
        return min(natural, _GROWING_WIDTH) if column.grows else natural

    shown = {index: needed(index, column) + _GAP for index, column in enumerate(block.columns)}
    while sum(shown.values()) - _GAP > width:
        rank, index = max((block.columns[index].rank, index) for index in shown)
        if rank == 0:
            break
        del shown[index]
    return list(shown)


def _json(text: str) -> RenderableType:
    from rich.text import Text

    shown = Text(json_visible(text))
    if len(text) <= _HIGHLIGHT_MAX_CHARS:
        from rich.highlighter import JSONHighlighter

        JSONHighlighter().highlight(shown)
    return shown


def _print_problem(console: Console, problem: Problem) -> None:
    from rich.text import Text

    message = Text.assemble(("error: ", "bold red"), visible(problem.message, keep_layout=True))
    console.print(message, soft_wrap=not console.is_terminal)
    if problem.hint:
        console.print(
            Text(visible(problem.hint, keep_layout=True), style="dim"), soft_wrap=not console.is_terminal
        )


def _write_utf8(stream: TextIO, text: str) -> None:
    if isinstance(stream, io.TextIOWrapper):
        stream.flush()
        stream.buffer.write(text.encode())
        stream.buffer.flush()
    else:
        stream.write(text)
        stream.flush()
