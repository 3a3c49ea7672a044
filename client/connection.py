"""The typed connection of a program to the daemon, under trio.

    async with open_client(paths, role="cli", environ=os.environ, start=True) as client:
        page = await client.list(kind="research")

Above it sit the command line and, later, the library; below it `requests`, which sees to it that each
request is answered whatever becomes of the daemon, and `launch`, which finds or starts one. Any number of
tasks may call. Every method has the name of the operation that it asks for.
"""

from __future__ import annotations

import os
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
from mcpstated.protocol.handle_record import record_to_json
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.messages import SLOW, Event, Failure, Goodbye, Message
from mcpstated.protocol.patches import operations_to_wire
from mcpstated.protocol.store import KEEP, KeepType, Page, Receipt, Trashed
from mcpstated.requests import Find, Repeat, Requests, Wire
from mcpstated.watch import Watch, WatchLagged

if TYPE_CHECKING:
    from mcpstated.launch import DaemonLink
    from mcpstated.protocol.documents import Document
    from mcpstated.protocol.errors import McpStateError
    from mcpstated.protocol.handle_record import HandleRecord
    from mcpstated.protocol.messages import Hello, Welcome
    from mcpstated.protocol.patches import Operation
    from mcpstated.protocol.paths import Paths

CONNECT_TIMEOUT_SECONDS = 10.0
"""How long a daemon may take to greet, its start included."""
_CLIENT_ID_BYTES = 16
_TRUSTED = Limits(max_depth=sys.maxsize, max_integer_digits=sys.maxsize)
"""A stored document was checked against its daemon's limits, which are not ours to know."""
_Answer = TypeVar("_Answer")


class DaemonClient:
    """A client that has been welcomed.

    Every method raises `McpStateError` subclasses as the daemon sent them, and `VersionSkew` if the answer
    has a shape that this build does not know. If the daemon ends meanwhile, the next one is asked, and a
    write is applied once and answered as it was the first time. Where that cannot be, because there is no
    daemon in time, or an old one that cannot tell: `DaemonUnavailable` if nothing was changed,
    `OutcomeUnknown` for a write that may have been applied.

    Cancellation: the daemon is told that nobody waits; a write that was sent may still be applied.
    """

    def __init__(self, wire: Wire, *, find: Find | None = None, waits_for_start: bool = True) -> None:
        """Talk over a connection.

        Args:
            find: Makes the next connection when one breaks; None if the first is to be the last.
            waits_for_start: Keep looking where no daemon runs, because somebody may start one.
        """
        self._watches: dict[int, Watch] = {}
        self._requests = Requests(
            wire, find=find, waits_for_start=waits_for_start, on_message=self._take, on_lost=self._lose
        )
        self.run = self._requests.run
        """Serves the connections until cancelled; must run for any method to return."""

    @property
    def welcome(self) -> Welcome:
        """The greeting of the daemon that was connected last: its build, instance and pid."""
        return self._requests.welcome

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

    async def adopt(self, record: HandleRecord) -> Receipt:
        """Take a handle over from another store, for this client's user."""
        text = dump(record_to_json(record))
        return await self._ask("import", {"record": text}, receipt_from_wire, is_write=True)

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
            "empty_trash",
            parameters,
            lambda fields: integer_of(fields, "removed"),
            is_write=True,
            repeat=Repeat.IF_UNSENT,
        )

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watch]:
        """Watch the changes of this client's user, from entering the block to leaving it.

        If the daemon ends, the watch ends with DaemonUnavailable: what changed meanwhile is not told.
        """
        watch, number = Watch(), self._requests.new_number()
        # Known before it is asked for: changes may follow the answer in the same read.
        self._watches[number] = watch
        try:
            await self._requests.ask(number, "watch", {}, is_write=False, repeat=Repeat.IF_UNSENT)
            yield watch
        finally:
            del self._watches[number]
            watch.close()
            self._requests.call_off(number)

    async def stop(self, reason: str) -> int:
        """Ask the daemon to stop, and return its process id; it may live on while it finishes.

        Args:
            reason: `stopping`, or `upgrading` so that shims look for the next daemon at once.
        """
        return await self._ask(
            "stop", {"reason": reason}, lambda fields: integer_of(fields, "pid"), repeat=Repeat.NEVER
        )

    async def _ask(
        self,
        operation: str,
        parameters: dict[str, object],
        decode: Callable[[Mapping[str, object]], _Answer],
        *,
        is_write: bool = False,
        repeat: Repeat | None = None,
    ) -> _Answer:
        result = await self._requests.ask(
            self._requests.new_number(),
            operation,
            parameters,
            is_write=is_write,
            repeat=repeat or (Repeat.BY_LEDGER if is_write else Repeat.ALWAYS),
        )
        try:
            return decode(result)
        except MalformedAnswer as error:
            self._raise_skew(operation, str(error))

    def _take(self, message: Message) -> None:
        """Take what is no answer to a request that somebody waits for."""
        if isinstance(message, Goodbye) and message.reason == SLOW:
            for lagging in self._watches.values():
                lagging.end(WatchLagged(message.text))
        elif isinstance(message, Failure) and (watch := self._watches.get(message.id)) is not None:
            watch.end(error_from_wire(message.error))
        elif isinstance(message, Event) and (watch := self._watches.get(message.subscription)) is not None:
            try:
                watch.add_nowait(change_from_wire(message.revision, message.payload))
            except MalformedAnswer as error:
                watch.end(self._skew("watch", str(error)))

    def _lose(self, error: McpStateError) -> None:
        for watch in self._watches.values():
            watch.end(error)

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
    """Connect to the daemon of one store, again whenever that ends, and close the connection at the end.

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
    hello = make_hello(role, environ=environ, shim_id=os.urandom(_CLIENT_ID_BYTES))

    async def find(timeout_seconds: float) -> Wire:
        link = await _link(paths, hello, environ=environ, start=start, timeout_seconds=timeout_seconds)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(link.sock))
        return Wire(stream, link.connection, link.welcome)

    wire = await find(timeout_seconds)
    client = DaemonClient(wire, find=find, waits_for_start=start)
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
        await trio.aclose_forcefully(wire.stream)  # if nobody came to serve it


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
