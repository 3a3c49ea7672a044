"""Every open connection, what it is told about itself, and what is told to all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from mcpstated.protocol.limits import Limits
from mcpstated.protocol.messages import Goodbye

if TYPE_CHECKING:
    from mcpstated.daemon.dispatch import Dispatch
    from mcpstated.daemon.mcp_library import McpLibrary
    from mcpstated.daemon.relay import RunningCalls
    from mcpstated.daemon.session import Session
    from mcpstated.surface.direct import DirectAnswers


@dataclass(frozen=True, slots=True)
class SessionServices:
    """What a session needs of the daemon around it."""

    direct: DirectAnswers
    library: McpLibrary
    dispatch: Dispatch
    running: RunningCalls
    note_settled: Callable[[bytes, int], None]
    limits: Limits
    build: str
    instance: str
    revision: Callable[[], int]
    """Says how far the store is, in what is durable."""
    store_mark: Callable[[], str]
    """Says which store this is (`mcpstated.protocol.store_mark`)."""
    default_user: str


@dataclass(slots=True)
class Sessions:
    """The open sessions. Changed only by the session tasks themselves."""

    _open: dict[int, Session] = field(default_factory=dict)
    _next_id: int = 1
    _changed: trio.Event = field(default_factory=trio.Event)
    farewell: Goodbye | None = None
    """What newcomers are told once the daemon is leaving."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._open.values()))

    def add(self, session: Session) -> int:
        """Register a session and return its number."""
        number = self._next_id
        self._next_id += 1
        self._open[number] = session
        self._notify()
        return number

    def remove(self, number: int) -> None:
        del self._open[number]
        self._notify()

    def supersede(self, shim_id: bytes) -> None:
        """End the reading of sessions whose peer has come back; an empty id is nobody's."""
        for session in self:
            if shim_id and session.hello is not None and session.hello.shim_id == shim_id:
                session.supersede()

    async def changed(self) -> None:
        """Return after the next session came or went."""
        await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
