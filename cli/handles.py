"""Handles as the commands show and complete them."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from mcpstated.cli import words
from mcpstated.cli.blocks import Column, Fields, Rows
from mcpstated.cli.escape import visible
from mcpstated.protocol.store import info_to_wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from mcpstated.cli.options import Invocation
    from mcpstated.connection import DaemonClient
    from mcpstated.protocol.store import HandleInfo

_PLAIN_HANDLE = re.compile(r"[A-Za-z0-9_-]+\Z")
_COMPLETE_SECONDS = 1.0
_COMPLETE_LIMIT = 100


def handles_table(handles: Sequence[HandleInfo], *, now_unix: float, empty: str) -> Rows:
    """Return a list of handles for people."""
    columns = (
        Column("HANDLE"),
        Column("V", is_number=True),
        Column("TITLE", grows=True),
        Column("UPDATED"),
        Column("SIZE", is_number=True, rank=1),
        Column("WRITER", rank=3),
        Column("EXPIRES", rank=2),
    )
    rows = tuple(
        (
            info.handle,
            str(info.version),
            info.title or info.outline,
            words.ago(info.updated_at, now_unix),
            words.size(info.size_bytes),
            info.last_writer,
            words.until(info.expires_at, now_unix),
        )
        for info in handles
    )
    return Rows(columns, rows, empty=empty)


def handle_data(info: HandleInfo) -> dict[str, object]:
    """Return everything that is known of one handle for programs, under the names of the tools' replies."""
    data = info_to_wire(info)
    for name in ("created_at", "updated_at", "expires_at"):
        data[name] = words.iso(getattr(info, name))
    return data


def handle_fields(info: HandleInfo, *, now_unix: float) -> Fields:
    """Return everything that is known of one handle for people."""
    expires = words.until(info.expires_at, now_unix)
    if info.expires_at is not None:
        expires = f"{words.moment(info.expires_at)} ({expires})"
    rows = [
        ("handle", info.handle),
        ("kind", info.kind),
        ("version", str(info.version)),
        ("created", words.moment(info.created_at)),
        ("updated", f"{words.moment(info.updated_at)} ({words.ago(info.updated_at, now_unix)})"),
        ("expires", expires),
        ("last writer", info.last_writer),
        ("size", words.size(info.size_bytes)),
    ]
    if info.title is not None:
        rows.insert(1, ("title", info.title))
    return Fields(tuple(rows))


def complete_handles(invocation: Invocation, incomplete: str) -> list[CompletionItem]:
    """Return handles that begin with `incomplete`, from a running daemon; none if that is not quick."""
    import trio
    from click.shell_completion import CompletionItem

    from mcpstated.cli.calls import call_daemon
    from mcpstated.protocol.errors import McpStateError

    async def matching(client: DaemonClient) -> tuple[HandleInfo, ...]:
        with trio.move_on_after(_COMPLETE_SECONDS):
            page = await client.list(query=incomplete or None, limit=_COMPLETE_LIMIT)
            return page.handles
        return ()

    try:
        found = call_daemon(invocation, matching, start=False, connect_seconds=_COMPLETE_SECONDS)
    except (McpStateError, OSError):
        return []  # a shell that completes must not show errors
    now = time.time()
    return [
        CompletionItem(
            info.handle,
            help=visible(info.title or f"version {info.version}, {words.ago(info.updated_at, now)}"),
        )
        for info in found
        if info.handle.startswith(incomplete) and _PLAIN_HANDLE.match(info.handle)
    ]
