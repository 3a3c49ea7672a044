"""`mcpstated list`: which handles there are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from mcpstated.cli.blocks import Line
from mcpstated.cli.calls import call_daemon
from mcpstated.cli.handles import handle_data, handles_table
from mcpstated.cli.options import Invocation, data_dir_option, json_option, pass_invocation, user_option
from mcpstated.cli.result import Result
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.store import Page

if TYPE_CHECKING:
    from mcpstated.connection import DaemonClient

_PAGE = Limits().max_list_page


@click.command("list")
@click.option("--kind", metavar="KIND", help="Only handles of this kind.")
@click.option("--query", metavar="WORDS", help="Only handles with all these words in handle, title or kind.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="At most that many."
)
@click.option("--cursor", metavar="CURSOR", help="Go on where an earlier list ended.")
@click.option("--all", "is_all", is_flag=True, help="All of them, however many.")
@user_option
@json_option
@data_dir_option
@pass_invocation
def command(
    invocation: Invocation, kind: str | None, query: str | None, limit: int, cursor: str | None, is_all: bool
) -> Result:
    """List handles, newest change first, with title, version and size; never their state."""

    async def pages(client: DaemonClient) -> Page:
        found = await client.list(
            kind=kind, query=query, cursor=cursor, limit=_PAGE if is_all else min(limit, _PAGE)
        )
        handles = list(found.handles)
        while found.next_cursor is not None and (is_all or len(handles) < limit):
            wanted = _PAGE if is_all else min(limit - len(handles), _PAGE)
            found = await client.list(kind=kind, query=query, cursor=found.next_cursor, limit=wanted)
            handles += found.handles
        return Page(tuple(handles), found.total, found.next_cursor)

    page = call_daemon(invocation, pages, start=True)
    data = {
        "handles": [handle_data(info) for info in page.handles],
        "total": page.total,
        "next_cursor": page.next_cursor,
    }
    empty = "No handle matches." if kind or query else "There are no handles yet."
    blocks = [handles_table(page.handles, now_unix=time.time(), empty=empty)]
    if page.next_cursor is None:
        return Result("list", data=data, blocks=tuple(blocks))
    more = f"{len(page.handles):,} of {page.total:,}. For the rest: --all, or --cursor {page.next_cursor}"
    return Result("list", data=data, blocks=(*blocks, Line(more, "dim")))
