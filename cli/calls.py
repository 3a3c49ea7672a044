"""Run one conversation with the daemon from a command, which is not async itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mcpstated.cli.options import Invocation
    from mcpstated.connection import DaemonClient

_Answer = TypeVar("_Answer")


def call_daemon(
    invocation: Invocation,
    conversation: Callable[[DaemonClient], Awaitable[_Answer]],
    *,
    start: bool,
    connect_seconds: float = 10.0,
) -> _Answer:
    """Connect, run `conversation` with the client, and return its answer.

    Args:
        start: Start a daemon if none runs.
        connect_seconds: How long starting and greeting may take.

    Raises:
        What `open_client` and the client's methods raise.
    """
    import trio  # --help and a command without a daemon need not pay for it

    from mcpstated.connection import open_client

    async def talk() -> _Answer:
        paths, environ = invocation.paths(), invocation.environ()
        async with open_client(
            paths, role="cli", environ=environ, start=start, timeout_seconds=connect_seconds
        ) as client:
            return await conversation(client)

    return trio.run(talk)
