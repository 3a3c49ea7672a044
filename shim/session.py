"""The daemon's end: one greeted connection, its bytes in both directions, its end."""

from __future__ import annotations

from mcpstated.protocol.messages import Forward, Goodbye
from mcpstated.protocol.violations import RemoteProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mcpstated.launch import DaemonLink
    from mcpstated.protocol.messages import Message

_RECEIVE_BYTES = 65536
_CHUNK_BYTES = 262144
_ENVELOPE_BYTES = 64
"""What a `forward` weighs without its line, at most."""


class DaemonSession:
    """A connection until it ends; `over` then says how."""

    __slots__ = ("_link", "_unsent", "fd", "has_progressed", "max_line_bytes", "opened_at", "over")

    def __init__(self, link: DaemonLink, opened_at: float) -> None:
        self._link = link
        self._unsent = bytearray()
        self.fd = link.sock.fileno()
        self.opened_at = opened_at
        self.max_line_bytes = link.connection.max_frame_bytes - _ENVELOPE_BYTES
        self.has_progressed = False
        """True once a line was settled here."""
        self.over: str | None = None
        """The reason of the goodbye, or `broken`; None while the connection lives."""

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def forward(self, seq: int, mode: int, floor: int, line: bytes) -> None:
        """Queue one line for the daemon."""
        self._unsent += self._link.connection.send(Forward(seq, mode, floor, line))

    def flush(self) -> None:
        """Send what the daemon takes without waiting."""
        try:
            while self._unsent:
                del self._unsent[: self._link.sock.send(self._unsent[:_CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # it hung up; its last words may still be there to be read

    def receive(self) -> None:
        """Take in what has come, one portion of it; may set `over`."""
        try:
            data = self._link.sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._link.connection.receive_data(data)
        else:
            self.over = "broken"

    def next_message(self) -> Message | None:
        """Return the next whole message, or None; may set `over`."""
        try:
            message = self._link.connection.next_event()
        except RemoteProtocolError:
            self.over = "broken"
            return None
        if isinstance(message, Goodbye):
            self.over = message.reason
            return None
        return message

    def close(self) -> None:
        self._link.sock.close()
