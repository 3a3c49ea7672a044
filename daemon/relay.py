"""The daemon's half of the relay: one shim's JSON-RPC lines in, its answers out.

Above it is a session that hands over `Forward` messages. Below are the direct answers to what is usual and,
for the rest, up to two loops of the MCP server, one for each protocol era, since clients mix the eras on one
pipe:

    Forward -> read_line -> direct answers ------------------------------------> surface -> engine
                        |-> legacy loop (after `initialize`)   -> MCP server --/
                        \\-> modern loop (`_meta` names a version) -/
    Deliver/Settled <- answer under the client's own id

Inside the loops a request's id is the number of its line (`seq`), which is unique for the life of
the shim, whatever ids the client picks. Every line is settled exactly once: by an answer, or by
`Settled` if none will come. What a dead shim forwarded is finished: `finish` waits for its calls.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import trio

from mcpstated.daemon.envelope import (
    INTERNAL_ERROR,
    Blank,
    Call,
    Malformed,
    Notice,
    Reply,
    RequestId,
    error_line,
    read_line,
    unread,
    write_line,
)
from mcpstated.daemon.failpoints import failpoint
from mcpstated.daemon.mcp_library import Inward
from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.messages import KEPT, RESENT, Deliver, Forward, Settled
from mcpstated.protocol.store import CallToken
from mcpstated.protocol.wording import printable
from mcpstated.surface.context import RequestContext
from mcpstated.surface.eras import CLIENT_INFO_KEY, PROTOCOL_VERSION_KEY, SUBSCRIPTION_ID_KEY
from mcpstated.surface.failures import failure
from mcpstated.surface.faults import ProtocolFault

if TYPE_CHECKING:
    from mcpstated.daemon.mcp_library import McpLibrary
    from mcpstated.daemon.shares import Share
    from mcpstated.surface.direct import DirectAnswers

log = logging.getLogger("mcpstated.relay")

LEGACY, MODERN = "legacy", "modern"
_MAX_CLIENT_NAME_CHARS = 200
_ENDLESS = "subscriptions/listen"
"""A request that is answered when the client has had enough; until then it costs nothing."""
_NO_SEQ = 0
"""Lines are counted from 1."""


class RunningCalls:
    """The tool calls that run in this daemon, by shim and line, over all sessions.

    A shim whose connection broke comes back at once and sends its unsettled lines again, while the
    first run of such a line may still be going on here; the second waits for it.
    """

    def __init__(self) -> None:
        self._ends: dict[tuple[bytes, int], trio.Event] = {}

    def begin(self, shim_id: bytes, seq: int) -> None:
        self._ends[shim_id, seq] = trio.Event()

    def end(self, shim_id: bytes, seq: int) -> None:
        if (event := self._ends.pop((shim_id, seq), None)) is not None:
            event.set()

    async def wait_for(self, shim_id: bytes, seq: int) -> None:
        """Return when no run of that line goes on."""
        while (event := self._ends.get((shim_id, seq))) is not None:
            await event.wait()


class Sender(Protocol):
    """How a relay speaks to its shim."""

    async def __call__(self, message: Deliver | Settled) -> None: ...


@dataclass(slots=True)
class _Pending:
    id: RequestId
    method: str
    era: str
    is_silent: bool
    """The answer is not for the client: the line was kept from an earlier daemon."""
    is_cancelled: bool = False
    """The client wants no answer any more; a call outside the loops goes on and is settled without one."""


class Relay:
    """One shim's conversation.

    Args:
        direct: Answers what is usual; shared by all relays.
        library: Answers the rest; shared too.
        shim_id: What the shim said in its hello.
        user, writer: Whom the calls are made for; an empty writer is made from the client's name.
        send: Sends to the shim; must not raise if the shim is gone.
        room: Returns when an answer can be queued; waited for before an answer is written out.
        running: Shared by all relays of the daemon.
        share: What the shim's process uses; requests count as running there until they are settled.
        note_settled: Told the shim's floor whenever it rises.
        max_line_bytes: The longest line that fits a frame.
    """

    def __init__(
        self,
        direct: DirectAnswers,
        library: McpLibrary,
        *,
        shim_id: bytes,
        user: str,
        writer: str,
        send: Sender,
        room: Callable[[], Awaitable[None]],
        running: RunningCalls,
        share: Share,
        note_settled: Callable[[bytes, int], None],
        max_line_bytes: int,
    ) -> None:
        self._direct = direct
        self._library = library
        self._shim_id = shim_id
        self._user = user
        self._writer = writer
        self._send = send
        self._room = room
        self._running = running
        self._share = share
        self._note_settled = note_settled
        self._max_line_bytes = max_line_bytes
        self._floor = 0
        self._loops: dict[str, trio.MemorySendChannel[Inward]] = {}
        self._pending: dict[int, _Pending] = {}
        self._kept: set[str] = set()
        self._handshake_name = ""
        self._handshake: list[Inward] = []
        """What a loop that is opened later must hear first."""
        self._changed = trio.Event()
        self._nursery: trio.Nursery | None = None
        self.client_name = ""
        """What the client calls itself, as `name version`, once it has said so."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the loops until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                await trio.sleep_forever()
        finally:
            self.abandon()

    @property
    def in_flight(self) -> int:
        """Requests that will be answered in finite time (an open subscription stream is not one)."""
        return sum(pending.method != _ENDLESS for pending in self._pending.values())

    async def wait_below(self, count: int) -> None:
        """Return when fewer than `count` requests are in flight."""
        while self.in_flight >= count:
            await self._changed.wait()

    async def finish(self) -> None:
        """Return when every tool call that was forwarded has ended."""
        while any(pending.method == "tools/call" for pending in self._pending.values()):
            await self._changed.wait()

    def abandon(self) -> None:
        """Answer nothing more: what still runs stays unsettled, for the shim to send again.

        Call it before cancelling `run`: the loops answer cancelled requests with errors of their own,
        and a call that another daemon will finish must not be settled by one.
        """
        for seq, pending in self._pending.items():
            if pending.method == "tools/call":
                self._running.end(self._shim_id, seq)
            if pending.method != _ENDLESS:
                self._share.end_request()
        self._pending.clear()

    async def forward(self, message: Forward, *, refusal: str | None = None) -> None:
        """Take one line of the client.

        Args:
            refusal: Why the line is not even read, if that is so.
        """
        failpoint("relay.line_received")
        if message.floor > self._floor:
            self._floor = message.floor
            self._note_settled(self._shim_id, message.floor)
        envelope = read_line(message.line) if refusal is None else unread(message.line, refusal)
        match envelope:
            case Call():
                await self._forward_call(message, envelope)
            case Notice():
                await self._forward_notice(message, envelope)
            case Malformed():
                await self._send(Deliver(self._refusal(envelope), message.seq))
            case Blank() | Reply():
                await self._send(Settled(message.seq))

    def _refusal(self, malformed: Malformed) -> bytes:
        """Return the answer to a line that cannot be read: a tool's result if it was a call of a tool."""
        if malformed.id is None or malformed.method != "tools/call":
            return error_line(malformed.id, malformed.code, malformed.reason)
        result: dict[str, Any] = dict(failure(InvalidInput(malformed.reason, field="arguments")))
        if "initialize" not in self._kept:  # after a handshake it is not known, and means nothing
            result["resultType"] = "complete"
        return write_line({"jsonrpc": "2.0", "id": malformed.id, "result": result})

    async def _forward_call(self, message: Forward, call: Call) -> None:
        seq = message.seq
        era = self._era_of(call.method, call.params)
        self._note_client(call)
        is_tool_call = call.method == "tools/call"
        if is_tool_call:
            await self._running.wait_for(self._shim_id, seq)
            self._running.begin(self._shim_id, seq)
            failpoint("relay.call_begun")
        pending = _Pending(call.id, call.method, era, is_silent=message.mode == KEPT)
        self._pending[seq] = pending
        if call.method != _ENDLESS:
            self._share.begin_request()
        token = CallToken(self._shim_id, seq, is_resent=message.mode == RESENT) if is_tool_call else None
        context = RequestContext(
            user=self._user, writer=self._writer, token=token, client_name=self._handshake_name
        )
        is_modern = era == MODERN
        if not self._direct.takes(
            call.method, call.params, is_modern=is_modern, has_handshake="initialize" in self._kept
        ):
            self._feed(era, Inward(call.method, call.params, seq, context))
        elif is_tool_call:
            assert self._nursery is not None
            self._nursery.start_soon(self._call_tool, seq, context, call.params, is_modern)
            await trio.lowlevel.checkpoint()  # it begins before the next line is looked at: order is kept
        else:
            if call.method == "initialize":
                self._handshake = [Inward(call.method, call.params, _NO_SEQ, context)]
            result = self._direct.answer(call.method, call.params, is_modern=is_modern)
            await self.on_outcome(seq, {"result": result})

    async def _call_tool(
        self, seq: int, context: RequestContext, params: dict[str, Any] | None, is_modern: bool
    ) -> None:
        try:
            outcome = {"result": await self._direct.call_tool(context, params, is_modern=is_modern)}
        except ProtocolFault as fault:
            outcome = {"error": {"code": fault.code, "message": fault.message}}
        await self.on_outcome(seq, outcome)

    async def _forward_notice(self, message: Forward, notice: Notice) -> None:
        params = notice.params
        era = self._era_of(notice.method, params)
        if notice.method == "notifications/cancelled":
            target = self._pending_with_id((params or {}).get("requestId"))
            if target is None:
                await self._send(Settled(message.seq))
                return
            seq, pending = target
            pending.is_cancelled = True
            era, params = pending.era, {**(params or {}), "requestId": seq}
        is_handshake = notice.method == "notifications/initialized" and era == LEGACY
        if era in self._loops:
            self._feed(era, Inward(notice.method, params))
        elif is_handshake:
            self._handshake.append(Inward(notice.method, params))
        keep = is_handshake and self._keep_once("initialized")
        if message.mode != KEPT:
            failpoint("relay.before_settled")
            await self._send(Settled(message.seq, keep=keep))
            failpoint("relay.after_settled")

    def _era_of(self, method: str, params: dict[str, Any] | None) -> str:
        """Return which loop a message belongs to; decided per message, for clients mix the eras."""
        if method != "initialize":
            meta = (params or {}).get("_meta")
            if isinstance(meta, dict) and PROTOCOL_VERSION_KEY in meta:
                return MODERN
            if method.startswith("notifications/") and LEGACY not in self._loops and MODERN in self._loops:
                return MODERN
        return LEGACY

    def _feed(self, era: str, item: Inward) -> None:
        """Hand a message to its loop, without a wait: a call that is registered must reach its loop.

        Requests in the channel are bounded by the session; a loop takes notifications as fast as they come.
        """
        channel = self._loops.get(era)
        if channel is None:
            assert self._nursery is not None
            channel, source = trio.open_memory_channel[Inward](math.inf)
            self._loops[era] = channel
            self._nursery.start_soon(self._library.serve, source, self)
            for said in self._handshake if era == LEGACY else ():
                channel.send_nowait(said)
        channel.send_nowait(item)

    async def on_message(self, message: dict[str, Any]) -> None:
        """Send what a loop says by itself, under the client's own ids."""
        meta = (message.get("params") or {}).get("_meta")
        if isinstance(meta, dict) and (pending := self._pending.get(meta.get(SUBSCRIPTION_ID_KEY, _NO_SEQ))):
            meta[SUBSCRIPTION_ID_KEY] = pending.id
        await self._send(Deliver(write_line(message), None))

    def _keep_once(self, what: str) -> bool:
        """Tell whether the shim should keep this line: it keeps one handshake, however often one is made."""
        is_first = what not in self._kept
        self._kept.add(what)
        return is_first

    async def on_outcome(self, seq: int, outcome: dict[str, Any] | None) -> None:
        """Settle a line by what became of its request: an answer, or none if there will be none."""
        pending = self._pending.pop(seq, None)
        if pending is None:  # abandoned, or settled before
            return
        try:
            if outcome is None or pending.is_cancelled:
                await self._send(Settled(seq))
            elif not pending.is_silent:
                await self._room()
                line = write_line({"jsonrpc": "2.0", "id": pending.id, **outcome})
                if len(line) > self._max_line_bytes:
                    line = error_line(
                        pending.id, INTERNAL_ERROR, "The answer is too large to be sent; ask for less."
                    )
                is_handshake = pending.method == "initialize" and "result" in outcome
                if pending.method == "tools/call":
                    failpoint("relay.before_answer")
                await self._send(Deliver(line, seq, keep=is_handshake and self._keep_once("initialize")))
                if pending.method == "tools/call":
                    failpoint("relay.after_answer")
            elif "result" in outcome:
                self._keep_once(pending.method)
        finally:
            if pending.method == "tools/call":
                self._running.end(self._shim_id, seq)
            if pending.method != _ENDLESS:
                self._share.end_request()
            self._changed.set()
            self._changed = trio.Event()

    def _pending_with_id(self, id_: object) -> tuple[int, _Pending] | None:
        """Return the newest request under that id; clients that write 7 as "7" are understood."""
        for seq in reversed(self._pending):
            pending = self._pending[seq]
            if type(pending.id) is type(id_) and pending.id == id_:
                return seq, pending
        for seq in reversed(self._pending):
            if str(self._pending[seq].id) == str(id_):
                return seq, self._pending[seq]
        return None

    def _note_client(self, call: Call) -> None:
        params = call.params or {}
        meta = params.get("_meta")
        info = params.get("clientInfo") if call.method == "initialize" else None
        if isinstance(info, dict) and isinstance(name := info.get("name"), str):
            self._handshake_name = name
        if info is None and not self.client_name and isinstance(meta, dict):
            info = meta.get(CLIENT_INFO_KEY)
        if isinstance(info, dict) and isinstance(name := info.get("name"), str):
            version = info.get("version")
            label = f"{name} {version}" if isinstance(version, str) else name
            self.client_name = printable(label, _MAX_CLIENT_NAME_CHARS)
