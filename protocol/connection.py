"""One end of the wire as a state machine: bytes in, messages out. No I/O, no clock.

    connection = Connection("daemon")
    connection.receive_data(b"...")
    while (message := connection.next_event()) is not None: ...
    socket.send(connection.send(Welcome(...)))

Rules, per side: the client's first message is `hello` and comes once; the daemon's first is
`welcome` or `goodbye`; after `goodbye` the daemon sends nothing. A shim forwards, other roles make
requests. After a `RemoteProtocolError` the connection is broken for good. Any exception other than
the two of `violations` that escapes from here is our bug.
"""

from __future__ import annotations

from mcpstated.protocol.frames import DEFAULT_MAX_FRAME_BYTES, FrameReader, encode_frame
from mcpstated.protocol.messages import (
    FROM_CLIENT,
    FROM_DAEMON,
    GOODBYE_REASONS,
    ROLES,
    Deliver,
    Event,
    Failure,
    Forward,
    Goodbye,
    Hello,
    Message,
    Request,
    Response,
    Settled,
    Welcome,
    decode_message,
    encode_message,
)
from mcpstated.protocol.violations import LocalProtocolError, RemoteProtocolError

_SHIM_ID_BYTES = 16
_MAX_NUMBER = 2**63 - 1
"""The largest line number: databases keep it in 64 bits with a sign."""
_HELLO_FRAME_BYTES = 16 * 1024
"""The largest frame that is taken from a peer that has not said who it is."""


class Connection:
    """The protocol state of one connection, seen from one end.

    Args:
        role: Our end: `client` or `daemon`.
        max_frame_bytes: The largest payload accepted from the peer, in bytes.
    """

    __slots__ = (
        "_broken",
        "_greeted",
        "_is_daemon",
        "_parted",
        "_reader",
        "_welcomed",
        "max_frame_bytes",
        "peer_role",
        "version",
    )

    def __init__(self, role: str, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        if role not in ("client", "daemon"):
            raise LocalProtocolError(f"a connection is for a client or a daemon, not {role!r}")
        self._is_daemon = role == "daemon"
        self._reader = FrameReader(
            min(_HELLO_FRAME_BYTES, max_frame_bytes) if self._is_daemon else max_frame_bytes
        )
        self._greeted = False
        self._welcomed = False
        self._parted = False
        self._broken: RemoteProtocolError | None = None
        self.max_frame_bytes = max_frame_bytes
        self.peer_role: str | None = None
        """The role in the peer's hello (daemon side) or our own (client side), once said."""
        self.version = 1
        """The protocol version of the welcome, once that was said."""

    def set_max_frame_bytes(self, max_frame_bytes: int) -> None:
        """Change the limit for both directions (a client takes over the one in the daemon's welcome)."""
        self.max_frame_bytes = max_frame_bytes
        self._reader.max_frame_bytes = max_frame_bytes

    def receive_data(self, data: bytes) -> None:
        """Add bytes that came from the peer, in any portions; dropped after a `RemoteProtocolError`."""
        if self._broken is None:
            self._reader.feed(data)

    def next_event(self) -> Message | None:
        """Return the next whole message, or None if more bytes are needed.

        Raises:
            RemoteProtocolError: The peer broke the protocol; every later call raises it again.
        """
        if self._broken is not None:
            raise self._broken
        try:
            payload = self._reader.next_payload()
            if payload is None:
                return None
            known = FROM_CLIENT if self._is_daemon else FROM_DAEMON
            message = decode_message(payload, known, self.version)
            if self._is_daemon:
                self._check_client_message(message)
            else:
                self._check_daemon_message(message)
        except RemoteProtocolError as error:
            self._broken = error
            self._reader = FrameReader(self.max_frame_bytes)  # what was held is of no use any more
            raise
        return message

    def send(self, message: Message) -> bytes:
        """Return the bytes that carry `message`.

        Raises:
            LocalProtocolError: This end must not send that now, or it does not fit a frame.
        """
        known = FROM_DAEMON if self._is_daemon else FROM_CLIENT
        if known.get(message.NAME) is not type(message):
            raise LocalProtocolError(f"{message.NAME} is not sent from this end")
        if self._is_daemon and self._parted:
            raise LocalProtocolError("nothing is sent after goodbye")
        payload = encode_message(message, self.version)
        if len(payload) > self.max_frame_bytes:
            raise LocalProtocolError(
                f"{message.NAME} has {len(payload)} bytes; {self.max_frame_bytes} fit a frame"
            )
        if self._is_daemon:
            self._note_sent_by_daemon(message)
        else:
            self._note_sent_by_client(message)
        return encode_frame(payload)

    @property
    def is_inside_frame(self) -> bool:
        """True if the peer has begun a frame and not ended it."""
        return self._reader.is_inside_frame

    def _check_client_message(self, message: Message) -> None:
        if isinstance(message, Hello):
            if self._greeted:
                raise RemoteProtocolError("hello came twice")
            if message.role not in ROLES:
                raise RemoteProtocolError(f"hello names the unknown role {message.role[:40]!r}")
            if len(message.shim_id) != _SHIM_ID_BYTES and (message.shim_id or message.role == "shim"):
                raise RemoteProtocolError("hello.shim_id has the wrong length for its role")
            if not 0 < message.protocol_min <= message.protocol_max:
                raise RemoteProtocolError("hello names an empty protocol range")
            if not all(type(name) is str for name in message.capabilities):
                raise RemoteProtocolError("hello.capabilities must be strings")
            self._greeted = True
            self.peer_role = message.role
            self._reader.max_frame_bytes = self.max_frame_bytes
            return
        if not self._greeted:
            raise RemoteProtocolError(f"{message.NAME} came before hello")
        if isinstance(message, Forward):
            if self.peer_role != "shim":
                raise RemoteProtocolError("only a shim forwards")
            if message.mode not in (0, 1, 2) or not (0 < message.seq <= _MAX_NUMBER >= message.floor >= 0):
                raise RemoteProtocolError("forward has a number out of range")
        elif self.peer_role == "shim":
            raise RemoteProtocolError(f"a shim sends no {message.NAME}")
        elif (
            isinstance(message, Request)
            and self.version > 1
            and not (0 < message.id <= _MAX_NUMBER >= message.floor >= 0)
        ):
            raise RemoteProtocolError("request has a number out of range")

    def _check_daemon_message(self, message: Message) -> None:
        if self._parted:
            raise RemoteProtocolError(f"{message.NAME} came after goodbye")
        if isinstance(message, Goodbye):
            if message.reason not in GOODBYE_REASONS:
                raise RemoteProtocolError(f"goodbye names the unknown reason {message.reason[:40]!r}")
            self._parted = True
            return
        if isinstance(message, Welcome):
            if self._welcomed or not self._greeted:
                raise RemoteProtocolError("welcome came out of turn")
            self._welcomed = True
            self.version = message.protocol
            return
        if not self._welcomed:
            raise RemoteProtocolError(f"{message.NAME} came before welcome")
        if isinstance(message, Deliver | Settled) != (self.peer_role == "shim"):
            raise RemoteProtocolError(f"{message.NAME} is not for this role")

    def _note_sent_by_client(self, message: Message) -> None:
        if isinstance(message, Hello):
            if self._greeted:
                raise LocalProtocolError("hello is said once")
            self._greeted = True
            self.peer_role = message.role
        elif not self._welcomed:
            raise LocalProtocolError(f"{message.NAME} must wait for welcome")
        elif isinstance(message, Forward) != (self.peer_role == "shim"):
            raise LocalProtocolError(f"{message.NAME} is not for this role")

    def _note_sent_by_daemon(self, message: Message) -> None:
        if isinstance(message, Goodbye):
            self._parted = True
        elif isinstance(message, Welcome):
            if self._welcomed or not self._greeted:
                raise LocalProtocolError("welcome answers one hello")
            self._welcomed = True
            self.version = message.protocol
        elif not self._welcomed:
            raise LocalProtocolError(f"{message.NAME} must wait for welcome")
        elif isinstance(message, Response | Failure | Event) == (self.peer_role == "shim"):
            raise LocalProtocolError(f"{message.NAME} is not for this role")
