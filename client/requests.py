"""The requests of one program: each is sent until it is answered, over as many connections as that takes.

    caller --> outstanding --> writer --> daemon --> reader --> caller
                    ^------- sent again to the next daemon --------'

A connection that breaks is followed by the next one as soon as somebody waits for an answer. What was not
answered is then sent again under its old number; the daemon knows by that number, and by the id in the
hello, which writes it has applied already, and answers those from its ledger. `floor` tells it which numbers
will not come again. One task runs all this; any number of tasks may ask.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import trio

from mcpstated.answers import MalformedAnswer, error_from_wire
from mcpstated.launch import DaemonNotReady, DaemonNotRunning, VersionSkew
from mcpstated.protocol.errors import (
    DaemonUnavailable,
    InvalidInput,
    McpStateError,
    OutcomeUnknown,
    StoreReplaced,
)
from mcpstated.protocol.messages import Cancel, Failure, Goodbye, Message, Request, Response
from mcpstated.protocol.store_mark import is_successor, mark_in
from mcpstated.protocol.violations import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from mcpstated.protocol.connection import Connection
    from mcpstated.protocol.messages import Welcome

GIVE_UP_SECONDS = 10.0
"""How long what waits may be without a daemon, however often one is found and lost again meanwhile."""
_FIRST_DELAY_SECONDS = 0.01
_MAX_DELAY_SECONDS = 1.0
_DRAIN_SECONDS = 1.0
"""How long the last words of a daemon that takes nothing more may take."""
_RECEIVE_BYTES = 65536
_LEDGER_VERSION = 2
"""The first protocol version in which a request can be recognised when it comes again."""


class Wire:
    """One greeted connection."""

    __slots__ = ("connection", "stream", "welcome")

    def __init__(self, stream: trio.abc.Stream, connection: Connection, welcome: Welcome) -> None:
        self.stream = stream
        self.connection = connection
        """May already hold messages that came right behind the welcome."""
        self.welcome = welcome

    @property
    def has_ledger(self) -> bool:
        """True if the daemon recognises a request that comes again."""
        return self.connection.version >= _LEDGER_VERSION


class Repeat(enum.Enum):
    """What becomes of a request whose connection breaks before it is answered."""

    ALWAYS = enum.auto()
    """Nothing changes if it is performed twice: it is sent again."""
    BY_LEDGER = enum.auto()
    """It is sent again if all daemons that may have seen it, and the next one, recognise it."""
    IF_UNSENT = enum.auto()
    """It goes to the next daemon only if no other has seen it."""
    NEVER = enum.auto()
    """It is meant for the daemon that is connected now, and for no other."""


Find: TypeAlias = Callable[[float], Awaitable[Wire]]
"""Finds or starts a daemon within so many seconds. Raises McpStateError."""


class _Asked:
    """One request that has not been answered."""

    __slots__ = ("answered", "error", "is_write", "message", "repeat", "result", "was_sent")

    def __init__(self, message: Request, repeat: Repeat, is_write: bool) -> None:
        self.message = message
        self.repeat = repeat
        self.is_write = is_write
        self.was_sent = False
        """True once a daemon may have seen it."""
        self.answered = trio.Event()
        self.result: dict[str, object] | None = None
        self.error: McpStateError | None = None

    def fail(self, error: McpStateError) -> None:
        self.error = error
        self.answered.set()


class Requests:
    """All requests of one client, numbered from 1.

    Args:
        wire: The first connection.
        find: Makes the next one; None if there is to be none.
        waits_for_start: Look on where no daemon runs, because somebody may start one; else give up at once.
        on_message: Told of what is no answer to a request: events, a goodbye, the end of a watch.
        on_lost: Told, each time a connection is over, what those get who relied on it.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        find: Find | None,
        waits_for_start: bool,
        on_message: Callable[[Message], None],
        on_lost: Callable[[McpStateError], None],
    ) -> None:
        self._find = find
        self._on_message = on_message
        self._on_lost = on_lost
        self._passing = (DaemonNotReady, DaemonNotRunning) if waits_for_start else (DaemonNotReady,)
        self._wire: Wire | None = wire
        self._asked: dict[int, _Asked] = {}
        """What waits for its answer, by number, which is also the order."""
        self._unsent: deque[_Asked | Cancel] = deque()
        self._work_arrived = trio.Event()
        self._last_number = 0
        self._goodbye: str | None = None
        self._is_over = False
        self._waiting_since: float | None = None
        """From when on the bound counts; None if nothing went wrong for what waits."""
        self._delay_seconds = 0.0
        self.welcome = wire.welcome
        """The greeting of the newest connection."""

    def new_number(self) -> int:
        """Return the number of the next request."""
        self._last_number += 1
        return self._last_number

    async def ask(
        self, number: int, operation: str, parameters: dict[str, object], *, repeat: Repeat, is_write: bool
    ) -> dict[str, object]:
        """Return the answer to a request.

        Args:
            number: From `new_number`, used once and without a wait since.
            is_write: It may change something, so that nobody knows what became of it if no answer comes.

        Raises:
            McpStateError: As the daemon sent it, or why there is no answer.

        Cancellation: the daemon is told that nobody waits; a write that was sent may still be applied.
        """
        if self._is_over or (self._wire is None and repeat is Repeat.NEVER):
            raise self._gone()
        asked = self._asked[number] = _Asked(Request(number, operation, parameters), repeat, is_write)
        self._put(asked)
        try:
            await asked.answered.wait()
        except trio.Cancelled:
            self.call_off(number)
            raise
        finally:
            del self._asked[number]
        if asked.error is not None:
            raise asked.error
        assert asked.result is not None
        return asked.result

    def call_off(self, number: int) -> None:
        """Tell the daemon that nobody waits for that request any more; late and needless ones do no harm."""
        asked = self._asked.get(number)
        if asked is not None and not asked.was_sent:
            self._unsent = deque(item for item in self._unsent if item is not asked)
        elif self._wire is not None:
            self._put(Cancel(number))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve one connection after the other until cancelled; never raises for a lost peer."""
        task_status.started()
        try:
            while self._wire is not None:
                wire = self._wire
                try:
                    await self._converse(wire)
                finally:
                    self._wire = None
                    self._lose(wire)
                if self._find is not None:
                    self._wire = await self._next_wire(self._find)
        finally:
            self._is_over = True
            self._fail_all(self._gone())

    # -- one connection ---------------------------------------------------------------------------

    async def _converse(self, wire: Wire) -> None:
        self.welcome = wire.welcome
        self._goodbye = None
        self._unsent = deque(asked for asked in self._asked.values() if not asked.answered.is_set())
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, wire, nursery.cancel_scope)
                await self._read(wire)
                nursery.cancel_scope.cancel()
        finally:
            await trio.aclose_forcefully(wire.stream)

    async def _write(self, wire: Wire, scope: trio.CancelScope) -> None:
        try:
            while True:
                if not self._unsent:
                    self._work_arrived = trio.Event()
                    await self._work_arrived.wait()
                    continue
                if (frame := self._next_frame(wire)) is not None:
                    await wire.stream.send_all(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # What the daemon said before it went may still lie in the socket: let the reader have it.
            scope.deadline = trio.current_time() + _DRAIN_SECONDS

    def _next_frame(self, wire: Wire) -> bytes | None:
        """Take the oldest unsent item and return its frame; None if it cannot be sent."""
        item = self._unsent.popleft()
        if isinstance(item, Cancel):
            return wire.connection.send(item)
        message = item.message
        message.is_resent, message.floor = item.was_sent, next(iter(self._asked), message.id)
        try:
            frame = wire.connection.send(message)
        except LocalProtocolError as error:
            refusal = InvalidInput(f"This call cannot be sent: {error}.", field="parameters")
            item.fail(self._unknown(item, refusal) if item.was_sent and item.is_write else refusal)
            return None
        item.was_sent = True
        return frame

    async def _read(self, wire: Wire) -> None:
        connection = wire.connection
        try:
            while True:
                while (message := connection.next_event()) is not None:
                    self._take(message)
                    if isinstance(message, Goodbye):
                        return
                data = await wire.stream.receive_some(_RECEIVE_BYTES)
                if not data:
                    return
                connection.receive_data(bytes(data))
        except RemoteProtocolError as error:
            self._goodbye = f"The daemon broke the protocol ({error})."
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    def _take(self, message: Message) -> None:
        asked = self._asked.get(message.id) if isinstance(message, Response | Failure) else None
        if asked is None:
            if isinstance(message, Goodbye):
                self._goodbye = message.text
            self._on_message(message)
            return
        self._waiting_since, self._delay_seconds = None, 0.0
        if isinstance(message, Response):
            asked.result = message.result
            asked.answered.set()
        elif isinstance(message, Failure):
            try:
                asked.fail(error_from_wire(message.error))
            except MalformedAnswer as error:
                asked.fail(VersionSkew(f"The daemon's answer cannot be understood: {error}."))

    # -- from one connection to the next ----------------------------------------------------------

    def _lose(self, wire: Wire) -> None:
        """Decide what becomes of everything that was not answered."""
        error = self._gone()
        self._on_lost(error)
        for asked in self._waiting():
            if not self._may_go_on(asked, has_ledger=wire.has_ledger):
                asked.fail(self._unknown(asked, error) if asked.was_sent and asked.is_write else error)
        if self._waiting() and self._waiting_since is None:
            self._waiting_since = trio.current_time()

    def _may_go_on(self, asked: _Asked, *, has_ledger: bool) -> bool:
        """Tell whether a request may go to another daemon, where one of the two has a ledger or none."""
        if asked.repeat is Repeat.NEVER:
            return False
        return (
            not asked.was_sent
            or asked.repeat is Repeat.ALWAYS
            or (asked.repeat is Repeat.BY_LEDGER and has_ledger)
        )

    async def _next_wire(self, find: Find) -> Wire:
        """Return the next connection, once somebody needs it; who waits in vain is told why."""
        while True:
            while not self._waiting():
                self._work_arrived = trio.Event()
                await self._work_arrived.wait()
            try:
                wire = await self._search(find)
            except McpStateError as error:
                self._waiting_since, self._delay_seconds = None, 0.0
                self._fail_all(error)
                continue
            reason = self._gone() if _is_same_store(self.welcome, wire.welcome) else _replaced()
            for asked in self._waiting():
                is_astray = isinstance(reason, StoreReplaced) and asked.was_sent and asked.is_write
                if is_astray or not self._may_go_on(asked, has_ledger=wire.has_ledger):
                    asked.fail(self._unknown(asked, reason))
            return wire

    async def _search(self, find: Find) -> Wire:
        if self._waiting_since is None:
            self._waiting_since = trio.current_time()
        deadline = self._waiting_since + GIVE_UP_SECONDS
        trouble: McpStateError = DaemonUnavailable("The daemon ends again and again before it answers.")
        while True:
            await trio.sleep(max(0.0, min(self._delay_seconds, deadline - trio.current_time())))
            if (left := deadline - trio.current_time()) <= 0:
                raise trouble
            self._delay_seconds = min(max(self._delay_seconds * 2, _FIRST_DELAY_SECONDS), _MAX_DELAY_SECONDS)
            try:
                return await find(left)
            except self._passing as error:
                trouble = error

    def _waiting(self) -> list[_Asked]:
        return [asked for asked in self._asked.values() if not asked.answered.is_set()]

    def _fail_all(self, error: McpStateError) -> None:
        for asked in self._waiting():
            asked.fail(self._unknown(asked, error) if asked.was_sent and asked.is_write else error)

    def _put(self, item: _Asked | Cancel) -> None:
        self._unsent.append(item)
        self._work_arrived.set()

    def _gone(self) -> DaemonUnavailable:
        return DaemonUnavailable(
            self._goodbye or "The connection to the daemon broke.",
            hint="The next command starts the daemon again.",
        )

    def _unknown(self, asked: _Asked, reason: McpStateError) -> OutcomeUnknown:
        operation, parameters = asked.message.operation, asked.message.parameters
        details: Mapping[str, object] = {"handle": parameters["handle"]} if "handle" in parameters else {}
        return OutcomeUnknown(
            f"The daemon went away before it answered {operation}; the change may have been applied or not. "
            f"{reason.message}",
            hint="Load or list to see what is stored before doing it again.",
            **details,
        )


def _is_same_store(known: Welcome, found: Welcome) -> bool:
    """False if the daemons say that their stores differ: the ledger of one knows nothing of the other."""
    ours, theirs = mark_in(known.capabilities), mark_in(found.capabilities)
    return ours is None or theirs is None or is_successor(theirs, ours)


def _replaced() -> StoreReplaced:
    return StoreReplaced("The store is not the one that was there before: it was replaced or put back.")
