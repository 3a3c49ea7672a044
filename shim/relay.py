"""The tube between one MCP client and the daemon, which loses no line whatever happens to the daemon.

    stdin --lines--> unsettled --forward--> daemon --deliver--> output --> stdout
                         ^---- resent to the next daemon if this one ends ----'

One thread, one poll over four descriptors. Backpressure in both directions: nothing is read from the
client while too much is unsettled, and nothing from the daemon while the client does not read. The
only blocking step is `find`, which looks for a daemon or starts one; it comes back here (`_meanwhile`)
several times a second, so that the client is read from and noticed when it goes.
"""

from __future__ import annotations

import os
import select
import time

from mcpstated.launch import DaemonNotReady, DaemonNotRunning
from mcpstated.protocol.errors import DaemonUnavailable, McpStateError, StoreReplaced
from mcpstated.protocol.frames import DEFAULT_MAX_FRAME_BYTES
from mcpstated.protocol.messages import FRESH, KEPT, RESENT, STOPPING, Deliver, Settled
from mcpstated.protocol.store_mark import is_successor, mark_in
from mcpstated.shim.descriptors import note
from mcpstated.shim.ending import Ending
from mcpstated.shim.lines import KEPT_BYTES, LineReader, Skipped
from mcpstated.shim.retry import Retry
from mcpstated.shim.session import DaemonSession
from mcpstated.shim.unsettled import Unsettled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpstated.launch import DaemonLink
    from mcpstated.shim.output import Output
    from mcpstated.shim.parent import ParentWatch

MAX_UNSETTLED_BYTES = 8 * 1024 * 1024
"""Unsettled lines above which the client is not read from."""
MAX_PENDING_BYTES = 1024 * 1024
"""Unread output above which the daemon is not read from."""
MAX_BACKLOG_BYTES = 32 * 1024 * 1024
"""Unread output above which the client is not read from: what it sends then only makes more."""
_READ_BYTES = 65536
_ORPHAN_READS = 16
"""Portions that are still read from the client once its process has ended."""
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL


class ClientGone(Exception):
    """There is nobody left to look for a daemon for."""


class Relay:
    """One client's conversation, from the first line to the last.

    Args:
        stdin: Descriptor that the client writes to.
        output: Where the client reads.
        parent: The process that started this one.
        find: Finds or starts the daemon: `find(timeout_seconds, on_wait)`; raises McpStateError.
    """

    def __init__(
        self,
        stdin: int,
        output: Output,
        parent: ParentWatch,
        find: Callable[[float, Callable[[], None]], DaemonLink],
    ) -> None:
        now = time.monotonic()
        self._stdin = stdin
        self._output = output
        self._parent = parent
        self._find = find
        self._lines = LineReader(DEFAULT_MAX_FRAME_BYTES)
        self._unsettled = Unsettled()
        self._session: DaemonSession | None = None
        self._retry = Retry(now)
        self._trouble: McpStateError = DaemonUnavailable("No daemon was found.")
        """Why the last attempt brought no answers."""
        self._ending = Ending(now)
        self._store: tuple[str, int] | None = None
        """The store that was used last, as its daemon named it."""
        self._has_news = False
        """True while the client has yet to be told that the store is another one."""

    def run(self) -> None:
        """Relay until the client is gone, or has ended its input and read the answers."""
        try:
            while not self._may_leave():
                if self._needs_daemon() and self._retry.seconds_left(time.monotonic()) == 0:
                    self._connect()
                else:
                    self._wait(self._patience())
        except ClientGone:
            pass
        finally:
            if self._session is not None:
                self._session.close()

    def _may_leave(self) -> bool:
        if self._output.is_dead:
            return True
        if not self._ending.has_begun:
            return False
        now = time.monotonic()
        if self._unsettled and self._seconds_for_answers(now) == 0:
            self._unsettled.take_all()
        if self._unsettled:
            return False
        return not self._output.pending_bytes or self._ending.seconds_for_flush(now) == 0

    def _seconds_for_answers(self, now: float) -> float:
        """Return how long the client's end waits for answers; a search has a bound of its own."""
        return float("inf") if self._needs_daemon() else self._ending.seconds_for_answers(now)

    def _patience(self) -> float | None:
        """Return how many seconds the poll may last; None means until something happens."""
        now = time.monotonic()
        waits = [self._seconds_for_answers(now) if self._unsettled else self._ending.seconds_for_flush(now)]
        if self._parent.look_seconds is not None:
            waits.append(self._parent.look_seconds)
        if self._needs_daemon():
            waits.append(self._retry.seconds_left(now))
        shortest = min(waits)
        return shortest if shortest < float("inf") else None

    # -- the daemon -------------------------------------------------------------------------------

    def _needs_daemon(self) -> bool:
        """True if one should be looked for; not while the client must first read what there is."""
        return (
            self._session is None
            and self._retry.is_wanted
            and (bool(self._unsettled) or not self._ending.has_begun)
            and self._output.pending_bytes <= MAX_PENDING_BYTES
        )

    def _connect(self) -> None:
        """Find a daemon and send it what the last one left; without one, answer what waits."""
        patience_seconds = self._retry.begin(time.monotonic())
        if patience_seconds == 0:
            self._give_up(self._trouble)
            return
        try:
            link = self._find(patience_seconds, self._meanwhile)
        except (DaemonNotRunning, DaemonNotReady) as error:
            # It may not be started from here, but perhaps others start it; or it took too long for the
            # lines that waited first, but not for one that came meanwhile.
            self._trouble = error
            self._retry.note_missed(time.monotonic())
            return
        except McpStateError as error:
            self._wait(0.0)  # what has been said meanwhile gets the same answer, not a search of its own
            self._give_up(error)
            return
        now = time.monotonic()
        self._retry.note_found()
        self._ending.note_connected(now)
        self._session = DaemonSession(link, now)
        self._lines.max_line_bytes = self._session.max_line_bytes
        self._recognise(link)
        has_told = False
        for seq, mode, line in self._unsettled.replay():
            if mode != KEPT and self._tell_news(seq, line, was_forwarded=mode == RESENT):
                has_told = True
            else:
                self._forward(seq, mode, line)
        self._has_news = self._has_news and not has_told
        self._session.flush()
        self._read_messages()  # some may have come with the welcome

    def _recognise(self, link: DaemonLink) -> None:
        """Note which store this is, and whether it can be the one that was used before."""
        found, known = mark_in(link.welcome.capabilities), self._store
        if found is not None:
            self._has_news = self._has_news or (known is not None and not is_successor(found, known))
            self._store = found

    def _tell_news(self, seq: int, line: bytes, *, was_forwarded: bool) -> bool:
        """Refuse a tool call if the store is another one: all that were under way, or else the next.

        What a daemon may have applied to the store that was there before is not sent to this one.
        """
        if not self._has_news:
            return False
        from mcpstated.shim.standin import answer_to_call  # imports json, for once

        error = StoreReplaced(
            "Nothing was done: the store is not the one that this client used before. It was removed, "
            "replaced or put back from a backup.",
            hint="Load or list to see what is there, then go on.",
        )
        answer = answer_to_call(line, error, was_forwarded=was_forwarded)
        if answer is None or not self._unsettled.settle(seq):
            return False
        note(error.message)
        self._output.put(answer)
        return True

    def _meanwhile(self) -> None:
        """Do what needs no daemon, while one is looked for.

        Raises:
            ClientGone: It need not be looked for any longer.
        """
        self._wait(0.0)
        if self._output.is_dead or (self._ending.has_begun and not self._unsettled):
            raise ClientGone

    def _give_up(self, error: McpStateError) -> None:
        """Answer every line in the daemon's place; the next line will look for a daemon again."""
        from mcpstated.shim.standin import answers_without_daemon  # imports json: the one moment for it

        note(error.message)
        for seq, line in self._unsettled.take_all():
            was_forwarded = self._unsettled.was_forwarded(seq)
            for answer in answers_without_daemon(line, error, was_forwarded=was_forwarded):
                self._output.put(answer)
        self._retry.give_up()
        self._ending.note_moved(time.monotonic())

    def _lose(self, session: DaemonSession) -> None:
        """Leave a connection that is over, and decide whether to look for the next one."""
        session.close()
        self._session = None
        if session.over == STOPPING and not self._unsettled:
            return  # whoever stopped it meant it: it is started again when it is needed
        self._trouble = DaemonUnavailable("The daemon ends again and again before it answers.")
        self._retry.note_lost(
            time.monotonic(), opened_at=session.opened_at, has_progressed=session.has_progressed
        )

    def _forward(self, seq: int, mode: int, line: bytes) -> None:
        session = self._session
        if session is None:
            self._retry.want(time.monotonic())
        elif len(line) > session.max_line_bytes:  # read while the limit was another one
            if self._unsettled.settle(seq):
                self._refuse(Skipped(line[:KEPT_BYTES], line[-KEPT_BYTES:]))
        else:
            session.forward(seq, mode, self._unsettled.floor, line)
            self._unsettled.note_forwarded(seq)

    def _read_messages(self) -> None:
        session = self._session
        assert session is not None
        while (message := session.next_message()) is not None:
            assert isinstance(message, Deliver | Settled)  # nothing else gets through to a shim
            seq = message.seq if isinstance(message, Settled) else message.answers
            is_news = seq is None
            if seq is not None and self._unsettled.settle(seq, message.keep):
                is_news = session.has_progressed = True
            if isinstance(message, Deliver):
                if self._store is not None and message.revision > self._store[1]:
                    self._store = (self._store[0], message.revision)
                if is_news:
                    self._output.put(message.line)
        if session.over is not None:
            self._lose(session)

    # -- the client -------------------------------------------------------------------------------

    def _take(self, line: bytes | Skipped) -> None:
        if isinstance(line, Skipped):
            self._refuse(line)
        else:
            seq = self._unsettled.add(line)
            if len(self._unsettled) == 1:
                self._retry.note_first_line(time.monotonic())
            if self._tell_news(seq, line, was_forwarded=False):
                self._has_news = False
            else:
                self._forward(seq, FRESH, line)

    def _refuse(self, line: Skipped) -> None:
        from mcpstated.shim.skipped import answer_to_skipped  # imports json and re, for once

        self._output.put(answer_to_skipped(line.head, line.tail, self._lines.max_line_bytes))

    def _read_input(self) -> None:
        try:
            data = os.read(self._stdin, _READ_BYTES)
        except OSError:  # a terminal that hung up, a socket that was reset
            data = b""
        if not data:
            self._end_input()
            return
        for line in self._lines.feed(data):
            self._take(line)

    def _end_input(self) -> None:
        if not self._ending.has_begun:
            for line in self._lines.finish():
                self._take(line)
            self._ending.begin(time.monotonic())

    def _outlive_parent(self) -> None:
        """Take what the client still said before it ended, and treat the rest as the end of input."""
        poller = select.poll()
        poller.register(self._stdin, select.POLLIN)
        for _ in range(_ORPHAN_READS):
            if self._ending.has_begun or not poller.poll(0):
                break
            self._read_input()
        self._end_input()
        self._parent.close()

    # -- waiting ----------------------------------------------------------------------------------

    def _wait(self, seconds: float | None) -> None:
        """Wait until something can be done, at most so long, and do it."""
        session, output, parent = self._session, self._output, self._parent
        poller = select.poll()
        if (
            not self._ending.has_begun
            and self._unsettled.weight_bytes <= MAX_UNSETTLED_BYTES
            and output.pending_bytes <= MAX_BACKLOG_BYTES
        ):
            poller.register(self._stdin, select.POLLIN)
        if parent.fd is not None:
            poller.register(parent.fd, select.POLLIN)
        if output.pending_bytes:
            poller.register(output.fd, select.POLLOUT)
        if session is not None:
            mask = select.POLLIN if output.pending_bytes <= MAX_PENDING_BYTES else 0
            if session.has_unsent:
                mask |= select.POLLOUT
            if mask:
                poller.register(session.fd, mask)
        ready = dict(poller.poll(None if seconds is None else seconds * 1000))

        if session is not None and ready.get(session.fd, 0) & _READABLE:
            session.receive()
            self._ending.note_moved(time.monotonic())
            self._read_messages()
        if self._stdin in ready:
            self._read_input()
        if parent.fd in ready or (parent.look_seconds is not None and parent.is_gone()):
            self._outlive_parent()
        if self._session is not None:
            self._session.flush()
        if output.pending_bytes and output.flush():
            self._ending.note_moved(time.monotonic())
