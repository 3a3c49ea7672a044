"""The messages of the wire: one slotted class each, one msgpack array each.

A message travels as `[name, *fields]`, fields in the order of `__slots__`. Unknown names, missing or
extra fields and fields of the wrong type are refused. Documents are JSON text inside these envelopes,
never msgpack maps. The shim imports this module, so it must stay free of typing and dataclasses.
"""

from __future__ import annotations

import msgpack

from mcpstated.protocol.violations import LocalProtocolError, RemoteProtocolError

PROTOCOL_MIN = 1
PROTOCOL_MAX = 2
"""The range of wire versions that this build speaks; features beside it are asked for by capability."""

FRESH, KEPT, RESENT = 0, 1, 2
"""How a line is forwarded: for the first time; as one kept for a new daemon (its answer is dropped);
again, because the connection broke before it was settled."""

ROLES = ("shim", "library", "cli")

STOPPING, UPGRADING, REFUSED, SKEW, BROKEN, SLOW = (
    "stopping",
    "upgrading",
    "refused",
    "version_skew",
    "protocol_error",
    "slow_reader",
)
"""Reasons of a goodbye."""
GOODBYE_REASONS = (STOPPING, UPGRADING, REFUSED, SKEW, BROKEN, SLOW)


class Message:
    """What all messages share: equality, a readable form, and their fields in order."""

    __slots__: tuple[str, ...] = ()
    NAME = ""
    TYPES: tuple[tuple[type, ...], ...] = ()
    FIELDS_IN_1: int | None = None
    """How many of the fields protocol version 1 has; None for all of them."""

    def fields(self) -> list[object]:
        return [getattr(self, slot) for slot in self.__slots__]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(self.NAME)

    def __repr__(self) -> str:
        inside = ", ".join(f"{slot}={getattr(self, slot)!r}" for slot in self.__slots__)
        return f"{type(self).__name__}({inside})"


class Hello(Message):
    """The client's first message."""

    __slots__ = (
        "protocol_min",
        "protocol_max",
        "capabilities",
        "role",
        "build",
        "shim_id",
        "user",
        "writer",
        "pid",
    )
    NAME = "hello"
    TYPES = ((int,), (int,), (list,), (str,), (str,), (bytes,), (str,), (str,), (int,))

    def __init__(
        self,
        protocol_min: int,
        protocol_max: int,
        capabilities: list[str],
        role: str,
        build: str,
        shim_id: bytes,
        user: str,
        writer: str,
        pid: int,
    ) -> None:
        self.protocol_min = protocol_min
        self.protocol_max = protocol_max
        self.capabilities = capabilities
        self.role = role
        self.build = build
        self.shim_id = shim_id
        """16 random bytes that stay the same over all connections of one client, whatever its role. Empty for
        a program that will send nothing again, as every one is that speaks protocol version 1."""
        self.user = user
        """Empty means the default user of the daemon."""
        self.writer = writer
        """Empty means that the daemon makes one from host and client."""
        self.pid = pid


class Welcome(Message):
    """The daemon's answer to hello."""

    __slots__ = ("protocol", "capabilities", "build", "instance", "pid", "limits")
    NAME = "welcome"
    TYPES = ((int,), (list,), (str,), (str,), (int,), (dict,))

    def __init__(
        self,
        protocol: int,
        capabilities: list[str],
        build: str,
        instance: str,
        pid: int,
        limits: dict[str, int],
    ) -> None:
        self.protocol = protocol
        self.capabilities = capabilities
        self.build = build
        self.instance = instance
        """Names one run of one daemon."""
        self.pid = pid
        self.limits = limits


class Request(Message):
    """A client (not a shim) asks for one operation."""

    __slots__ = ("id", "operation", "parameters", "is_resent", "floor")
    NAME = "request"
    TYPES = ((int,), (str,), (dict,), (bool,), (int,))
    FIELDS_IN_1 = 3

    def __init__(
        self,
        id: int,  # noqa: A002
        operation: str,
        parameters: dict[str, object],
        is_resent: bool = False,
        floor: int = 0,
    ) -> None:
        self.id = id
        """Counts up from 1 within one client, over all its connections."""
        self.operation = operation
        self.parameters = parameters
        self.is_resent = is_resent
        """It was sent before, over a connection that broke before it was answered."""
        self.floor = floor
        """No request below this number will come again: its ledger entry may go."""


class Response(Message):
    """The daemon's answer to a request."""

    __slots__ = ("id", "result")
    NAME = "response"
    TYPES = ((int,), (dict,))

    def __init__(self, id: int, result: dict[str, object]) -> None:  # noqa: A002
        self.id = id
        self.result = result


class Failure(Message):
    """The daemon refused a request; `error` is a payload of `errors.to_payload`."""

    __slots__ = ("id", "error")
    NAME = "failure"
    TYPES = ((int,), (dict,))

    def __init__(self, id: int, error: dict[str, object]) -> None:  # noqa: A002
        self.id = id
        self.error = error


class Cancel(Message):
    """The client no longer waits for a request; a watch ends."""

    __slots__ = ("id",)
    NAME = "cancel"
    TYPES = ((int,),)

    def __init__(self, id: int) -> None:  # noqa: A002
        self.id = id


class Event(Message):
    """One change, for a client that watches. `subscription` is the id of the watch request."""

    __slots__ = ("subscription", "revision", "payload")
    NAME = "event"
    TYPES = ((int,), (int,), (dict,))

    def __init__(self, subscription: int, revision: int, payload: dict[str, object]) -> None:
        self.subscription = subscription
        self.revision = revision
        self.payload = payload


class Forward(Message):
    """One line of the client's JSON-RPC, verbatim and without its newline."""

    __slots__ = ("seq", "mode", "floor", "line")
    NAME = "forward"
    TYPES = ((int,), (int,), (int,), (bytes,))

    def __init__(self, seq: int, mode: int, floor: int, line: bytes) -> None:
        self.seq = seq
        """Counts up from 1 within one shim."""
        self.mode = mode
        """FRESH, KEPT or RESENT."""
        self.floor = floor
        """Every line below this number is settled: its ledger entry may go."""
        self.line = line


class Deliver(Message):
    """One line for the client."""

    __slots__ = ("line", "answers", "keep", "revision")
    NAME = "deliver"
    TYPES = ((bytes,), (int, type(None)), (bool,), (int,))
    FIELDS_IN_1 = 3

    def __init__(self, line: bytes, answers: int | None, keep: bool = False, revision: int = 0) -> None:
        self.line = line
        self.answers = answers
        """The number of the line that this answers and settles, or None."""
        self.keep = keep
        """The answered line must be forwarded again to the next daemon (a legacy `initialize`)."""
        self.revision = revision
        """The newest durable revision of the store: one that has less is not the same. 0 if unsaid."""


class Settled(Message):
    """This line will get no answer."""

    __slots__ = ("seq", "keep")
    NAME = "settled"
    TYPES = ((int,), (bool,))

    def __init__(self, seq: int, keep: bool = False) -> None:
        self.seq = seq
        self.keep = keep
        """The line must be forwarded again to the next daemon (a legacy `initialized`)."""


class Goodbye(Message):
    """The daemon ends this connection and says why, in a word for programs and a sentence for people."""

    __slots__ = ("reason", "text")
    NAME = "goodbye"
    TYPES = ((str,), (str,))

    def __init__(self, reason: str, text: str) -> None:
        self.reason = reason
        self.text = text


FROM_CLIENT: dict[str, type[Message]] = {m.NAME: m for m in (Hello, Request, Cancel, Forward)}
FROM_DAEMON: dict[str, type[Message]] = {
    m.NAME: m for m in (Welcome, Response, Failure, Event, Deliver, Settled, Goodbye)
}


def encode_message(message: Message, version: int = PROTOCOL_MAX) -> bytes:
    """Return the msgpack array of `message` in a protocol version.

    Raises:
        LocalProtocolError: A field cannot be encoded (an integer above 64 bits, an unknown type).
    """
    fields = message.fields()
    if version == 1 and message.FIELDS_IN_1 is not None:
        fields = fields[: message.FIELDS_IN_1]
    try:
        packed: bytes = msgpack.packb([message.NAME, *fields], use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{message.NAME} cannot be encoded: {error}") from error
    return packed


_MAX_ITEMS = 1_024
"""Values in one message of a client, at every level together: documents are text, so few are ever needed."""
_SMALL_BYTES = 4_096


def _unpack(payload: bytes, **bounds: object) -> object:
    return msgpack.unpackb(payload, raw=False, strict_map_key=True, use_list=True, **bounds)


def _unpack_from_client(payload: bytes) -> object:
    """Return the value in a client's frame, which need not mean well.

    A frame of nothing but empty maps would become a hundred times its size. So no container may announce more
    values than any message has, and in a frame of any size the containers are counted as they come.
    """
    if len(payload) <= _SMALL_BYTES:
        return _unpack(payload, max_array_len=_MAX_ITEMS, max_map_len=_MAX_ITEMS)
    left = _MAX_ITEMS

    def count(container: list[object] | dict[str, object]) -> object:
        nonlocal left
        left -= 1 + len(container)
        if left < 0:
            raise ValueError(f"a message holds more than {_MAX_ITEMS} values")
        return container

    return _unpack(
        payload, max_array_len=_MAX_ITEMS, max_map_len=_MAX_ITEMS, list_hook=count, object_hook=count
    )


def decode_message(payload: bytes, known: dict[str, type[Message]], version: int = PROTOCOL_MAX) -> Message:
    """Return the message in `payload`.

    Args:
        known: The messages that may arrive on this side (`FROM_CLIENT` or `FROM_DAEMON`).
        version: The protocol version that was agreed on.

    Raises:
        RemoteProtocolError: Not msgpack, not an array, an unknown name, wrong number or types of fields.
    """
    try:
        array = _unpack_from_client(payload) if known is FROM_CLIENT else _unpack(payload)
    except Exception as error:  # msgpack raises its own and builtin types; all mean the same here
        raise RemoteProtocolError(f"a frame does not hold msgpack ({type(error).__name__})") from error
    if not isinstance(array, list) or not array or not isinstance(array[0], str):
        raise RemoteProtocolError("a frame does not hold an array that begins with a message name")
    message = known.get(array[0])
    if message is None:
        raise RemoteProtocolError(f"the message {array[0][:40]!r} is not known here")
    types = message.TYPES
    if version == 1 and message.FIELDS_IN_1 is not None:
        types = types[: message.FIELDS_IN_1]
    values = array[1:]
    if len(values) != len(types):
        raise RemoteProtocolError(f"{message.NAME} has {len(types)} fields, got {len(values)}")
    for slot, value, allowed in zip(message.__slots__, values, types, strict=False):
        if type(value) not in allowed:
            raise RemoteProtocolError(f"{message.NAME}.{slot} has the wrong type {type(value).__name__}")
    return message(*values)
