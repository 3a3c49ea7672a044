"""One connection from hello to goodbye.

    receive loop -> Connection -> Forward -> relay        } shim
                               -> Request -> dispatch     } library, cli
    outbox <- Deliver, Settled, Response, Failure, Event

Backpressure, not refusal: while a peer has `max_in_flight` requests running, or has not read what it
asked for, nothing more is read from it. A peer that breaks the protocol is told why and cut off; that
costs nobody else anything.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from mcpstated.daemon.dispatch import WATCH, error_to_wire
from mcpstated.daemon.failpoints import failpoint
from mcpstated.daemon.feed import FeedLagged
from mcpstated.daemon.intake import Intake
from mcpstated.daemon.logs import log_event
from mcpstated.daemon.outbox import Outbox, SlowReader
from mcpstated.daemon.relay import Relay
from mcpstated.daemon.shares import MARK_BYTES
from mcpstated.daemon.weights import LARGE_BYTES, count_marks, marks_allowed, too_many_marks
from mcpstated.protocol import fields
from mcpstated.protocol.connection import Connection
from mcpstated.protocol.errors import InvalidInput, McpStateError, to_payload
from mcpstated.protocol.messages import (
    BROKEN,
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    REFUSED,
    SKEW,
    SLOW,
    Cancel,
    Deliver,
    Event,
    Failure,
    Forward,
    Goodbye,
    Hello,
    Message,
    Request,
    Response,
    Welcome,
)
from mcpstated.protocol.store import Caller, CallToken
from mcpstated.protocol.violations import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from mcpstated.daemon.sessions import Sessions, SessionServices
    from mcpstated.daemon.shares import Share
    from mcpstated.protocol.peers import Peer

log = logging.getLogger("mcpstated.session")

_HELLO_SECONDS = 10.0
"""How long a peer may take to say who it is."""
_FINISH_SECONDS = 30.0
"""How long calls of a shim that is gone may go on."""
_ENVELOPE_BYTES = 64
"""What a `deliver` weighs without its line, at most."""
_COMMAND_LINE_SESSIONS = 8
"""Sessions above `max_sessions` for people who want to see what is going on, or to end it."""
_GOODBYE_SECONDS = 1.0
"""How long a goodbye may take to be written."""


class Session:
    """The daemon's side of one connection.

    Args:
        socket: The accepted socket; the session closes it.
        peer: Who the kernel says is at the other end.
        share: What that process uses of the daemon.
        sessions: Where the session registers itself.
        services: The daemon around it.
    """

    def __init__(
        self,
        socket: trio.socket.SocketType,
        peer: Peer,
        *,
        share: Share,
        sessions: Sessions,
        services: SessionServices,
        pid: int,
    ) -> None:
        self._socket = socket
        self._sessions = sessions
        self._services = services
        self._pid = pid
        limits = self._limits = services.limits
        self._connection = Connection("daemon", limits.max_frame_bytes)
        self._share = share
        self._intake = Intake(socket, self._connection, self._share)
        self._outbox = Outbox(
            max_unread_bytes=limits.max_unread_bytes, grace_seconds=limits.unread_grace_seconds
        )
        self._reading = trio.CancelScope()
        self._farewell: Goodbye | None = None
        self._requests: dict[int, trio.CancelScope] = {}
        self._watches: set[int] = set()
        self.peer = peer
        self.number = 0
        self.hello: Hello | None = None
        self.relay: Relay | None = None
        self.connected_at_unix = 0.0
        self.request_count = 0

    @property
    def in_flight(self) -> int:
        """Requests that are running."""
        return self.relay.in_flight if self.relay is not None else len(self._requests)

    def part(self, reason: str, text: str) -> None:
        """Take nothing new; say goodbye once what runs has been answered."""
        if self._farewell is None:
            self._farewell = Goodbye(reason, text)
        self._reading.cancel()

    def supersede(self) -> None:
        """Read nothing more: the peer has come back over another connection, and says it all again there.

        What was read goes on, and what comes again waits for it. What was not would be new here once it had
        been answered there.
        """
        self._outbox.close()
        self._reading.cancel()

    async def run(self) -> None:
        """Serve the connection until it ends, then finish what it asked for."""
        with self._socket:
            hello = None
            try:
                hello = await self._receive_hello()
            except RemoteProtocolError as error:
                log_event(log, "debug", "peer broke the protocol", session=self.number, reason=str(error))
                self._farewell = Goodbye(BROKEN, str(error))
            except OSError as error:
                log_event(log, "debug", "connection broke", session=self.number, error=type(error).__name__)
                return
            if hello is not None:
                await self._serve(hello)
            await self._say_goodbye()

    # -- hello ------------------------------------------------------------------------------------

    async def _receive_hello(self) -> Hello | None:
        """Return the hello, or None after setting the farewell that answers a bad one."""
        with trio.move_on_after(_HELLO_SECONDS):
            message = await self._intake.next_message()
            if message is None:
                return None
            assert isinstance(message, Hello)  # nothing else may come first
            return self._examine(message)
        self._farewell = Goodbye(REFUSED, f"No hello came within {_HELLO_SECONDS:g} seconds.")
        return None

    def _examine(self, hello: Hello) -> Hello | None:
        limits = self._limits
        if self._sessions.farewell is not None:
            self._farewell = self._sessions.farewell
            return None
        if hello.protocol_max < PROTOCOL_MIN or hello.protocol_min > PROTOCOL_MAX:
            self._farewell = Goodbye(
                SKEW,
                f"This client ({hello.build}) speaks protocol {hello.protocol_min} to {hello.protocol_max}, "
                f"the running daemon ({self._services.build}) {PROTOCOL_MIN} to {PROTOCOL_MAX}. "
                "Run `mcpstated restart` with the newer installation.",
            )
            return None
        reserved = _COMMAND_LINE_SESSIONS if hello.role == "cli" else 0
        if len(self._sessions) >= limits.max_sessions + reserved:
            self._farewell = Goodbye(REFUSED, f"The daemon already serves {limits.max_sessions} sessions.")
            return None
        most = limits.max_sessions - limits.max_sessions // 4
        if hello.role != "cli" and self._share.sessions >= most:
            self._farewell = Goodbye(
                REFUSED, f"This process already holds {most} sessions; none is left for it."
            )
            return None
        try:
            if hello.user:
                fields.check_user(hello.user, limits)
            if hello.writer:
                fields.check_writer(hello.writer, limits)
        except McpStateError as error:
            self._farewell = Goodbye(REFUSED, error.message)
            return None
        return hello

    # -- serving ----------------------------------------------------------------------------------

    async def _serve(self, hello: Hello) -> None:
        services = self._services
        self.hello = hello
        self._sessions.supersede(hello.shim_id)
        self.number = self._sessions.add(self)
        self._share.sessions += 1
        self.connected_at_unix = services.dispatch.now_unix()
        log_event(
            log,
            "info",
            "session opened",
            session=self.number,
            role=hello.role,
            peer_pid=self.peer.pid or hello.pid,
        )
        try:
            async with trio.open_nursery() as writing:
                writing.start_soon(self._write)
                self._queue(
                    Welcome(
                        min(hello.protocol_max, PROTOCOL_MAX),
                        [*services.dispatch.capabilities, services.store_mark()],
                        services.build,
                        services.instance,
                        self._pid,
                        {"max_frame_bytes": self._limits.max_frame_bytes},
                    )
                )
                async with trio.open_nursery() as working:
                    await self._work(hello, working)
                if self._farewell is not None:
                    with trio.move_on_after(self._limits.unread_grace_seconds):
                        await self._outbox.drained()
                writing.cancel_scope.cancel()
        finally:
            self._outbox.close()
            self._sessions.remove(self.number)
            self._share.sessions -= 1
            log_event(log, "info", "session closed", session=self.number)

    async def _work(self, hello: Hello, nursery: trio.Nursery) -> None:
        if hello.role == "shim":
            self.relay = Relay(
                self._services.direct,
                self._services.library,
                shim_id=hello.shim_id,
                user=hello.user or self._services.default_user,
                writer=hello.writer,
                send=self._send,
                room=self._outbox.room,
                running=self._services.running,
                share=self._share,
                max_line_bytes=self._limits.max_frame_bytes - _ENVELOPE_BYTES,
                note_settled=self._services.note_settled,
            )
            await nursery.start(self.relay.run)
        try:
            with self._reading:
                await self._receive(nursery)
            if self._farewell is None:
                self._outbox.close()  # the peer is gone: its answers go nowhere, its calls go on
            with trio.move_on_after(_FINISH_SECONDS):
                await self._finish()
        finally:
            if self.relay is not None:
                self.relay.abandon()
            nursery.cancel_scope.cancel()

    async def _receive(self, nursery: trio.Nursery) -> None:
        """Read and start what the peer asks for until it ends the connection."""
        try:
            while (message := await self._intake.next_message()) is not None:
                await self._take(message, nursery)
                await trio.lowlevel.checkpoint()  # the others' turn, however much has come at once
        except OSError as error:
            log_event(log, "debug", "peer vanished", session=self.number, error=type(error).__name__)
        except RemoteProtocolError as error:
            log_event(log, "debug", "peer broke the protocol", session=self.number, reason=str(error))
            self.part(BROKEN, str(error))

    async def _take(self, message: Message, nursery: trio.Nursery) -> None:
        if isinstance(message, Cancel):
            if (running := self._requests.get(message.id)) is not None:
                running.cancel()
            return
        self._share.note_request()
        await self._wait_for_room()
        if isinstance(message, Forward):
            assert self.relay is not None
            self.request_count += 1
            refusal = None if self._weigh(message.line) else too_many_marks(self._limits)
            await self.relay.forward(message, refusal=refusal)
        elif isinstance(message, Request):
            if message.id in self._requests:
                raise RemoteProtocolError(f"the request {message.id} is already running")
            self.request_count += 1
            scope = trio.CancelScope()
            self._requests[message.id] = scope
            self._share.begin_request()
            failpoint("session.request_received")
            nursery.start_soon(self._answer, message, scope)

    def _weigh(self, text: bytes) -> bool:
        """Charge what it will cost to read a JSON text; False if that is too much to be done at all."""
        if len(text) <= LARGE_BYTES:
            return True
        allowed = marks_allowed(self._limits)
        marks = count_marks(text, stop_above=allowed)
        self._share.charge(marks * MARK_BYTES)
        return marks <= allowed

    @property
    def _bounded_requests(self) -> int:
        """Requests that count for `max_in_flight`."""
        if self.relay is not None:
            return self.relay.in_flight
        return len(self._requests) - len(self._watches)

    async def _wait_for_room(self) -> None:
        limit = self._limits.max_in_flight
        while self._bounded_requests >= limit or not self._share.has_room:
            await self._share.request_ended()
        while self._outbox.is_full:
            await self._outbox.changed()

    async def _answer(self, request: Request, scope: trio.CancelScope) -> None:
        assert self.hello is not None
        token = None
        if self.hello.shim_id:
            token = CallToken(self.hello.shim_id, request.id, is_resent=request.is_resent)
            self._services.note_settled(self.hello.shim_id, request.floor)
        caller = Caller(
            user=self.hello.user or self._services.default_user,
            writer=self.hello.writer or self._services.dispatch.writer_for(self.hello.role),
            token=token,
        )
        reply: Message | None = None
        try:
            with scope:
                reply = await self._perform(request, caller)
        finally:
            del self._requests[request.id]
            if request.id in self._watches:
                self._watches.remove(request.id)
                self._share.note_end()
            else:
                self._share.end_request()
        if reply is not None:
            failpoint("session.before_reply")
            await self._send(reply)
            failpoint("session.after_reply")

    async def _perform(self, request: Request, caller: Caller) -> Message | None:
        """Return the answer to a request, or None if it was a watch that ended."""
        try:
            for name, value in request.parameters.items():
                if isinstance(value, str) and len(value) > LARGE_BYTES and not self._weigh(value.encode()):
                    raise InvalidInput(too_many_marks(self._limits), field=name)
            if request.operation == WATCH:
                await self._watch(request, caller)
                return None
            result = await self._services.dispatch.perform(request.operation, request.parameters, caller)
        except McpStateError as error:
            return Failure(request.id, error_to_wire(error))
        except Exception as error:  # a fault of ours costs its caller an answer, not the connection
            log.exception("operation failed", extra={"fields": {"operation": request.operation}})
            return Failure(request.id, to_payload(error))
        return Response(request.id, result)

    async def _watch(self, request: Request, caller: Caller) -> None:
        if len(self._watches) >= self._limits.max_watches:
            raise InvalidInput(
                f"This connection already holds {len(self._watches)} watches.", field="operation"
            )
        self._watches.add(request.id)
        self._share.end_request()  # it may go on for ever, and costs nothing
        with self._services.dispatch.watch(request.parameters, caller) as events:
            await self._send(Response(request.id, {"watching": True}))
            try:
                async for revision, payload in events:
                    if self._outbox.is_full:
                        raise FeedLagged
                    self._queue(Event(request.id, revision, payload))
            except FeedLagged:
                self.part(SLOW, "The events were not read in time; watch again from the last revision seen.")

    async def _finish(self) -> None:
        """Wait for what was asked for: a shim's calls always, a client's only if it still listens."""
        if self.relay is not None:
            if self._farewell is not None:
                await self.relay.wait_below(1)
            else:
                await self.relay.finish()
        elif self._farewell is not None:
            for number in self._watches:  # they would go on for ever; everything else ends by itself
                self._requests[number].cancel()
            while self._requests:
                await self._share.request_ended()

    # -- sending ----------------------------------------------------------------------------------

    async def _send(self, message: Message) -> None:
        if isinstance(message, Deliver):
            message.revision = self._services.revision()
        try:
            frame = self._connection.send(message)
        except LocalProtocolError as error:
            log_event(log, "error", "answer could not be encoded", session=self.number, reason=str(error))
            if not isinstance(message, Response | Failure):
                return
            frame = self._connection.send(Failure(message.id, to_payload(error)))
        self._share.charge(len(frame))
        await self._outbox.put(frame)

    def _queue(self, message: Message) -> None:
        self._outbox.put_nowait(self._connection.send(message))

    async def _write(self) -> None:
        try:
            await self._outbox.write_to(self._socket)
        except SlowReader:
            log_event(
                log, "warning", "slow reader cut off", session=self.number, unread=self._outbox.size_bytes
            )
            self._outbox.close()
            self._reading.cancel()
        except OSError:
            self._outbox.close()

    async def _say_goodbye(self) -> None:
        if self._farewell is None:
            return
        with trio.move_on_after(_GOODBYE_SECONDS):
            try:
                view = memoryview(self._connection.send(self._farewell))
                while view:
                    view = view[await self._socket.send(view) :]
                self._socket.shutdown(trio.socket.SHUT_WR)
            except OSError:
                return
