"""The typed connection of a program to the daemon, under trio.

    async with open_client(paths, role="cli", environ=os.environ, start=True) as client:
        page = await client.list(kind="research")

Above it sit the command line and, later, the library; below it `launch`, which finds or starts the
daemon, and the sans-IO `Connection`. One task reads and one writes for as long as the client is open;
any number of tasks may call. Every method has the name of the operation that it asks for.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn, TypeVar

import trio

from mcpstated.answers import (
    Loaded,
    MalformedAnswer,
    Status,
    change_from_wire,
    error_from_wire,
    integer_of,
    loaded_from_wire,
    page_from_wire,
    receipt_from_wire,
    status_from_wire,
    text_of,
    trash_from_wire,
)
from mcpstated.launch import VersionSkew, connect, ensure_daemon, make_hello
from mcpstated.protocol.documents import dump, parse
from mcpstated.protocol.errors import (
    DaemonUnavailable,
    InvalidInput,
    McpStateError,
    OutcomeUnknown,
)
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.messages import SLOW, Cancel, Event, Failure, Goodbye, Message, Request, Response
from mcpstated.protocol.patches import operations_to_wire
from mcpstated.protocol.store import KEEP, KeepType, Page, Receipt, Trashed
from mcpstated.protocol.violations import LocalProtocolError, RemoteProtocolError
from mcpstated.watch import Watch, WatchLagged

if TYPE_CHECKING:
    from mcpstated.launch import DaemonLink
    from mcpstated.protocol.connection import Connection
    from mcpstated.protocol.documents import Document
    from mcpstated.protocol.messages import Hello, Welcome
    from mcpstated.protocol.patches import Operation
    from mcpstated.protocol.paths import Paths

CONNECT_TIMEOUT_SECONDS = 10.0
"""How long a daemon may take to greet, its start included."""
_CANCEL_TIMEOUT_SECONDS = 1.0
_DRAIN_SECONDS = 1.0
_RECEIVE_BYTES = 65536
_TRUSTED = Limits(max_depth=sys.maxsize, max_integer_digits=sys.maxsize)
"""A stored document was checked against its daemon's limits, which are not ours to know."""
_Answer = TypeVar("_Answer")


class _Waiter:
    """One request that has not been answered."""

    __slots__ = ("answered", "error", "result")

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.result: dict[str, object] | None = None
        self.error: McpStateError | None = None


class DaemonClient:
    """A connection that has been welcomed.

    Every method raises `McpStateError` subclasses as the daemon sent them, `DaemonUnavailable` if the
    connection is gone before the call was sent or the call reads only, `OutcomeUnknown` if it broke
    after a write was sent, and `VersionSkew` if the answer has a shape that this build does not know.

    Cancellation: the daemon is told that nobody waits; a write that was sent may still be applied.
    """

    def __init__(self, stream: trio.abc.Stream, connection: Connection, welcome: Welcome) -> None:
        self.welcome = welcome
        """The daemon's greeting: its build, instance and pid."""
        self._stream = stream
        self._connection = connection
        self._ids = itertools.count(1)
        self._waiters: dict[int, _Waiter] = {}
        self._watches: dict[int, Watch] = {}
        self._goodbye: str | None = None
        self._is_ended = False
        # A rendezvous: a caller that is cancelled has either sent a whole frame or nothing.
        self._outgoing, self._to_write = trio.open_memory_channel[bytes](0)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the connection until it ends or the task is cancelled; never raises for a lost peer."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, nursery.cancel_scope)
            task_status.started()
            try:
                await self._read()
            finally:
                self._end()
            nursery.cancel_scope.cancel()

    async def status(self) -> Status:
        """Return what the daemon says of itself, its store and its sessions."""
        return await self._ask("status", {}, status_from_wire)

    async def list(
        self,
        *,
        kind: str | None = None,
        query: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page:
        """Return one page of live handles, newest change first."""
        given = {"kind": kind, "query": query, "cursor": cursor, "limit": limit}
        return await self._ask("list", {k: v for k, v in given.items() if v is not None}, page_from_wire)

    async def load(self, handle: str, *, path: str | None = None, version: int | None = None) -> Loaded:
        """Return the newest durable document, an older one, or the part at a path."""
        given = {"handle": handle, "path": path, "version": version}

        def decode(fields: Mapping[str, object]) -> Loaded:
            return loaded_from_wire(fields, parse(text_of(fields, "state"), field="state", limits=_TRUSTED))

        return await self._ask("load", {k: v for k, v in given.items() if v is not None}, decode)

    async def mint(
        self, kind: str, document: Document, *, ttl_days: float | None = None, title: str | None = None
    ) -> Receipt:
        """Make a new handle with version 1."""
        parameters: dict[str, object] = {"kind": kind, "state": dump(document)}
        if ttl_days is not None:
            parameters["ttl_days"] = ttl_days
        if title is not None:
            parameters["title"] = title
        return await self._ask("mint", parameters, receipt_from_wire, is_write=True)

    async def save(
        self,
        handle: str,
        document: Document,
        *,
        expect_version: int,
        ttl_days: float | None | KeepType = KEEP,
        title: str | None | KeepType = KEEP,
    ) -> Receipt:
        """Replace the document if its version still is `expect_version`."""
        parameters: dict[str, object] = {
            "handle": handle,
            "state": dump(document),
            "expect_version": expect_version,
        }
        if ttl_days is not KEEP:
            parameters["ttl_days"] = ttl_days
        if title is not KEEP:
            parameters["title"] = title
        return await self._ask("save", parameters, receipt_from_wire, is_write=True)

    async def patch(self, handle: str, operations: Sequence[Operation]) -> Receipt:
        """Apply all operations or none to the newest document."""
        ops = dump([*operations_to_wire(operations)])
        return await self._ask("patch", {"handle": handle, "ops": ops}, receipt_from_wire, is_write=True)

    async def touch(self, handle: str, *, ttl_days: float | None) -> Receipt:
        """Let the handle expire that many days from now, or never if None."""
        parameters: dict[str, object] = {"handle": handle, "ttl_days": ttl_days}
        return await self._ask("touch", parameters, receipt_from_wire, is_write=True)

    async def delete(self, handle: str) -> Receipt:
        """Delete the handle."""
        return await self._ask("delete", {"handle": handle}, receipt_from_wire, is_write=True)

    async def trash(self) -> tuple[Trashed, ...]:
        """Return deleted handles that can be brought back, the last deleted first."""
        return await self._ask("trash", {}, trash_from_wire)

    async def undelete(self, handle: str) -> Receipt:
        """Bring a deleted handle back."""
        return await self._ask("undelete", {"handle": handle}, receipt_from_wire, is_write=True)

    async def empty_trash(self, handle: str | None = None) -> int:
        """Remove one deleted handle, or all, for good; return how many that were."""
        parameters: dict[str, object] = {} if handle is None else {"handle": handle}
        return await self._ask(
            "empty_trash", parameters, lambda fields: integer_of(fields, "removed"), is_write=True
        )

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watch]:
        """Watch the changes of this client's user, from entering the block to leaving it."""
        watch, number = Watch(), next(self._ids)
        # Known before it is asked for: changes may follow the answer in the same read.
        self._watches[number] = watch
        try:
            await self._request(number, "watch", {}, is_write=False)
            yield watch
        finally:
            del self._watches[number]
            watch.close()
            await self._cancel(number)

    async def stop(self, reason: str) -> int:
        """Ask the daemon to stop, and return its process id; it may live on while it finishes.

        Args:
            reason: `stopping`, or `upgrading` so that shims look for the next daemon at once.
        """
        return await self._ask("stop", {"reason": reason}, lambda fields: integer_of(fields, "pid"))

    async def _ask(
        self,
        operation: str,
        parameters: dict[str, object],
        decode: Callable[[Mapping[str, object]], _Answer],
        *,
        is_write: bool = False,
    ) -> _Answer:
        result = await self._request(next(self._ids), operation, parameters, is_write=is_write)
        try:
            return decode(result)
        except MalformedAnswer as error:
            self._raise_skew(operation, str(error))

    async def _request(
        self, number: int, operation: str, parameters: dict[str, object], *, is_write: bool
    ) -> dict[str, object]:
        if self._is_ended:
            raise self._gone()
        try:
            frame = self._connection.send(Request(number, operation, parameters))
        except LocalProtocolError as error:
            raise InvalidInput(f"This call cannot be sent: {error}.", field="parameters") from error
        waiter = self._waiters[number] = _Waiter()
        try:
            try:
                await self._outgoing.send(frame)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise self._gone() from None
            try:
                await waiter.answered.wait()
            except trio.Cancelled:
                await self._cancel(number)
                raise
        finally:
            del self._waiters[number]
        if waiter.error is not None:
            raise waiter.error
        if waiter.result is None:
            raise self._unanswered(operation, parameters) if is_write else self._gone()
        return waiter.result

    async def _cancel(self, number: int) -> None:
        """Tell the daemon that nobody waits for that request; late, lost and needless ones do no harm."""
        if self._is_ended:
            return
        with trio.move_on_after(_CANCEL_TIMEOUT_SECONDS, shield=True):
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._outgoing.send(self._connection.send(Cancel(number)))

    async def _write(self, scope: trio.CancelScope) -> None:
        try:
            async for frame in self._to_write:
                await self._stream.send_all(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # What the daemon said before it went may still lie in the socket: let the reader have it.
            self._to_write.close()
            scope.deadline = trio.current_time() + _DRAIN_SECONDS

    async def _read(self) -> None:
        try:
            while True:
                while (message := self._connection.next_event()) is not None:
                    self._take(message)
                    if isinstance(message, Goodbye):
                        return
                data = await self._stream.receive_some(_RECEIVE_BYTES)
                if not data:
                    return
                self._connection.receive_data(bytes(data))
        except RemoteProtocolError as error:
            self._goodbye = f"The daemon broke the protocol ({error})."
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    def _take(self, message: Message) -> None:
        if isinstance(message, Goodbye):
            self._goodbye = message.text
            if message.reason == SLOW:
                for lagging in self._watches.values():
                    lagging.end(WatchLagged(message.text))
        elif isinstance(message, Response | Failure):
            self._answer(message)
        elif isinstance(message, Event) and (watch := self._watches.get(message.subscription)) is not None:
            try:
                watch.add_nowait(change_from_wire(message.revision, message.payload))
            except MalformedAnswer as error:
                watch.end(self._skew("watch", str(error)))

    def _answer(self, message: Response | Failure) -> None:
        waiter = self._waiters.get(message.id)
        if waiter is None:  # cancelled meanwhile, or the end of a watch
            if isinstance(message, Failure) and (watch := self._watches.get(message.id)) is not None:
                watch.end(error_from_wire(message.error))
            return
        if isinstance(message, Response):
            waiter.result = message.result
        else:
            waiter.error = error_from_wire(message.error)
        waiter.answered.set()

    def _end(self) -> None:
        """The connection is over: wake everyone who waits."""
        self._is_ended = True
        self._to_write.close()
        for waiter in self._waiters.values():
            waiter.answered.set()
        for watch in self._watches.values():
            watch.end(self._gone())

    def _gone(self) -> DaemonUnavailable:
        return DaemonUnavailable(
            self._goodbye or "The connection to the daemon broke.",
            hint="The next command starts the daemon again.",
        )

    def _unanswered(self, operation: str, parameters: Mapping[str, object]) -> OutcomeUnknown:
        details = {"handle": parameters["handle"]} if "handle" in parameters else {}
        return OutcomeUnknown(
            f"The daemon went away before it answered {operation}; the change may have been applied or not.",
            hint="Load or list to see what is stored before doing it again.",
            **details,
        )

    def _skew(self, operation: str, detail: str) -> VersionSkew:
        return VersionSkew(
            f"The daemon (version {self.welcome.build}) answered {operation} in a shape that this version "
            f"does not know: {detail}.",
            hint="Run: mcpstated restart",
        )

    def _raise_skew(self, operation: str, detail: str) -> NoReturn:
        raise self._skew(operation, detail)


@asynccontextmanager
async def open_client(
    paths: Paths,
    *,
    role: str,
    environ: Mapping[str, str],
    start: bool,
    timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
) -> AsyncIterator[DaemonClient]:
    """Connect to the daemon of one store, and close the connection at the end.

    Args:
        role: `cli` or `library`.
        environ: Says the user and the writer, and what a daemon that is started inherits.
        start: Start a daemon if none runs.
        timeout_seconds: How long greeting and starting may take.

    Raises:
        DaemonNotRunning: There is none, and `start` is false or forbidden.
        VersionSkew: The two sides have no protocol version in common; the text says what to do.
        DaemonUnavailable: It did not start or answer in time; the text says why, as far as is known.
    """
    hello = make_hello(role, environ=environ)
    link = await _link(paths, hello, environ=environ, start=start, timeout_seconds=timeout_seconds)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(link.sock))
    client = DaemonClient(stream, link.connection, link.welcome)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            yield client
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The tasks of ours do not raise, so there is one exception, the caller's: hand it on as it was.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from group.exceptions[0].__cause__
        raise
    finally:
        await trio.aclose_forcefully(stream)


async def _link(
    paths: Paths, hello: Hello, *, environ: Mapping[str, str], start: bool, timeout_seconds: float
) -> DaemonLink:
    """Run the blocking half of connecting in a thread; whoever gives up waiting leaks no socket."""
    lock = threading.Lock()
    made: list[DaemonLink] = []
    is_abandoned = False

    def work() -> DaemonLink:
        if start:
            link = ensure_daemon(paths, hello, timeout_seconds=timeout_seconds, environ=environ)
        else:
            link = connect(paths, hello, timeout_seconds=timeout_seconds)
        with lock:
            made.append(link)
            if is_abandoned:
                link.sock.close()
        return link

    try:
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    except BaseException:  # cancelled or interrupted; if it is what `work` raised, nothing was made
        with lock:
            is_abandoned = True
            for link in made:
                link.sock.close()
        raise
