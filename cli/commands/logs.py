"""`mcpstated logs`: what the daemon wrote down."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

import click

from mcpstated.cli.blocks import Block, Line, Verbatim
from mcpstated.cli.logfile import Follower, tail
from mcpstated.cli.options import Invocation, data_dir_option, invocation_of, json_option
from mcpstated.cli.result import Result

_POLL_SECONDS = 0.2


@click.command("logs")
@click.option(
    "-n", "--lines", type=click.IntRange(0, 1_000_000), default=50, show_default=True, help="How many."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@json_option
@data_dir_option
@click.pass_context
def command(ctx: click.Context, lines: int, follow: bool) -> Result:
    """Show the end of the daemon's log. No daemon is needed for it."""
    invocation: Invocation = invocation_of(ctx)
    path = invocation.paths().log
    if follow:
        if invocation.as_json:
            raise click.UsageError("--follow has no end, so it cannot be one JSON object; leave out --json.")
        _follow(path, lines)
        return Result("logs")
    found = tail(path, lines)
    blocks: tuple[Block, ...] = ()
    if found:
        blocks = (Verbatim("\n".join(found)),)
    elif lines:
        blocks = (Line(f"There is nothing in {path}.", "dim"),)
    return Result("logs", data={"path": path, "lines": found}, blocks=blocks)


def _follow(path: str, lines: int) -> None:
    follower = Follower(path)
    try:
        show = _shower(sys.stdout)
        show(tail(path, lines, end=follower.start))
        while True:
            show(follower.new_lines())
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        return  # how following ends
    finally:
        follower.close()


def _shower(stream: TextIO) -> Callable[[list[str]], None]:
    from mcpstated.cli.render import console_for, print_block

    console = console_for(stream)

    def show(lines: list[str]) -> None:
        if lines:
            print_block(console, Verbatim("\n".join(lines)))
            stream.flush()

    return show
