"""Ring 1: whatever bytes come over the wire, a message or one kind of error comes out."""

from __future__ import annotations

import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol.connection import Connection
from mcpstated.protocol.frames import encode_frame
from mcpstated.protocol.messages import (
    FROM_CLIENT,
    FROM_DAEMON,
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
    Settled,
    Welcome,
    decode_message,
    encode_message,
)
from mcpstated.protocol.violations import RemoteProtocolError
from support.mutations import mutated, portions

pytestmark = pytest.mark.requirement("P7")

MIB = 1024 * 1024
MAX_FRAME_BYTES = 2_000
SHIM = Hello(1, 2, ["a"], "shim", "test", bytes(16), "ann", "desk/test", 7)
PROGRAM = Hello(1, 2, [], "library", "test", b"", "", "", 7)
CLIENT_SAID: list[Message] = [
    SHIM,
    PROGRAM,
    Forward(1, 0, 0, b'{"jsonrpc":"2.0","id":1,"method":"ping"}'),
    Request(1, "patch", {"handle": "h_1", "ops": "[]", "n": 1}, False, 0),
    Cancel(1),
]
DAEMON_SAID: list[Message] = [
    Welcome(2, ["load"], "test", "instance", 7, {"max_frame_bytes": MAX_FRAME_BYTES}),
    Response(1, {"state": "{}"}),
    Failure(1, {"code": "invalid_input", "message": "no"}),
    Event(1, 2, {"handle": "h_1"}),
    Deliver(b"{}", 1),
    Settled(2),
    Goodbye("stopping", "The daemon stops."),
]
PAYLOADS = [encode_message(message) for message in CLIENT_SAID + DAEMON_SAID]
TO_DAEMON = [encode_frame(encode_message(message)) for message in CLIENT_SAID]
TO_CLIENT = [encode_frame(encode_message(message)) for message in DAEMON_SAID]
HELLO_FRAME = TO_DAEMON[1]


def end(role: str) -> Connection:
    """Return an end that listens; a client has said hello."""
    connection = Connection(role, MAX_FRAME_BYTES)
    if role == "client":
        connection.send(PROGRAM)
    return connection


def events(connection: Connection, pieces: list[bytes]) -> tuple[list[Message], str]:
    """Return what came out, and the text of the error that ended it."""
    found: list[Message] = []
    for piece in pieces:
        connection.receive_data(piece)
        try:
            while (message := connection.next_event()) is not None:
                found.append(message)
        except RemoteProtocolError as error:
            return found, str(error)
        assert len(connection._reader._buffer) <= MAX_FRAME_BYTES + 4 + len(piece) + 65_536
    return found, ""


streams = st.binary(max_size=300) | mutated(TO_DAEMON) | mutated(TO_CLIENT)
IN_VERSION_1 = encode_frame(encode_message(CLIENT_SAID[3], version=1))
greeted_streams = st.binary(max_size=100) | mutated([IN_VERSION_1, *TO_DAEMON[2:], *TO_CLIENT])


@given(st.sampled_from(["client", "daemon"]), streams, st.data())
def test_any_bytes_in_any_portions_are_events_and_then_perhaps_one_error(
    role: str, stream: bytes, data: st.DataObject
) -> None:
    """Anything else that escaped would end a session with a traceback; and portions must not matter."""
    whole = events(end(role), [stream])
    pieces = data.draw(portions(stream))

    assert events(end(role), pieces) == whole
    assert events(end(role), [bytes([byte]) for byte in stream]) == whole
    assert len(whole[1]) < 200
    assert whole[1].isprintable()


@given(greeted_streams, st.data())
def test_the_same_holds_behind_a_hello(stream: bytes, data: st.DataObject) -> None:
    """Random bytes rarely begin with a greeting, and most of the rules stand behind it."""
    whole = events(end("daemon"), [HELLO_FRAME, stream])

    assert whole[0][0] == PROGRAM
    assert events(end("daemon"), [HELLO_FRAME, *data.draw(portions(stream))]) == whole


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_broken_connection_stays_broken_and_holds_nothing(before: bytes, after: bytes) -> None:
    """Whoever goes on feeding it learns the same again, and fills no memory."""
    connection = end("daemon")
    connection.receive_data(b"\xff\xff\xff\xff" + before)
    with pytest.raises(RemoteProtocolError) as first:
        connection.next_event()
    for _ in range(3):
        connection.receive_data(after)
        with pytest.raises(RemoteProtocolError) as again:
            connection.next_event()
        assert again.value is first.value
    assert not connection.is_inside_frame


values = (
    st.none() | st.booleans() | st.integers(-1, 2) | st.text(max_size=2) | st.binary(max_size=2) | st.just([])
)
nearly_right = st.tuples(st.sampled_from(CLIENT_SAID + DAEMON_SAID), st.integers(0, 8), values).map(
    lambda drawn: msgpack.packb(
        [
            drawn[0].NAME,
            *(drawn[2] if place == drawn[1] else field for place, field in enumerate(drawn[0].fields())),
        ]
    )
)


@given(
    st.binary(max_size=300) | mutated(PAYLOADS) | nearly_right,
    st.sampled_from([FROM_CLIENT, FROM_DAEMON]),
    st.integers(1, 2),
)
def test_a_spoilt_payload_is_a_message_or_a_remote_error(
    payload: bytes, known: dict[str, type[Message]], version: int
) -> None:
    """What still is a message is one that this side understands, with fields of the right types."""
    try:
        message = decode_message(payload, known, version)
    except RemoteProtocolError:
        return
    assert known[message.NAME] is type(message)
    assert all(type(value) in allowed for value, allowed in zip(message.fields(), message.TYPES, strict=True))


def array_of(count: int, item: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + item * count


THOUSAND = msgpack.packb([[]] * 1_000)
BOMBS = {
    "empty maps": array_of(MIB, b"\x80"),
    "empty arrays": array_of(MIB, b"\x90"),
    "nulls": array_of(MIB, b"\xc0"),
    "a thousand times a thousand": array_of(1_000, THOUSAND),
    "arrays inside each other": b"\x91" * MIB,
    "arrays of a thousand inside each other": b"\xdc\x03\xe8" * (MIB // 3),
    "a map of many": b"\xdf" + MIB.to_bytes(4, "big") + b"\xa1a\xc0" * MIB,
    "announced and not there": b"\xdd\xff\xff\xff\xff" + bytes(MIB),
    "inside a request": b"\x96" + msgpack.packb("request") + b"\x01\xa1x\x81\xa1y" + array_of(MIB, b"\x80"),
}


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("kind", BOMBS)
def test_a_frame_of_tiny_values_is_refused_before_it_has_grown(kind: str) -> None:
    """A megabyte of empty maps would become sixty; that is refused on the way, not afterwards."""
    payload = BOMBS[kind]
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            decode_message(payload, FROM_CLIENT)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (
        peak < 12 * MIB
    )  # arrays inside each other: as deep as the parser goes, each with room for its items


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("piece_bytes", [1_000, 4_097, 65_536])
def test_an_endless_stream_of_frames_is_held_only_in_part(piece_bytes: int) -> None:
    """However frames and reads fall together, what was taken out is not kept."""
    frame = encode_frame(encode_message(Request(1, "load", {"handle": "x" * 1_500}), version=1))
    connection = end("daemon")
    connection.receive_data(HELLO_FRAME)
    stream = frame * (4 * MIB // len(frame))
    tracemalloc.start()
    try:
        for start in range(0, len(stream), piece_bytes):
            connection.receive_data(stream[start : start + piece_bytes])
            while connection.next_event() is not None:
                pass
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB
