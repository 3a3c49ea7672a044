"""Ring 1: every message, field by field."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol.messages import (
    FRESH,
    FROM_CLIENT,
    FROM_DAEMON,
    KEPT,
    RESENT,
    STOPPING,
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
from mcpstated.protocol.violations import LocalProtocolError, RemoteProtocolError

SAMPLES: list[Message] = [
    Hello(1, 1, ["a"], "shim", "0.1.0", b"\x00" * 16, "", "laptop/claude-code", 42),
    Welcome(1, ["a"], "0.1.0", "instance", 42, {"max_frame_bytes": 1 << 24}),
    Request(1, "list", {"kind": "research", "limit": 50, "none": None}),
    Response(2**63, {"handles": [], "next_cursor": None}),
    Failure(3, {"code": "invalid_input", "message": "m", "field": "kind"}),
    Cancel(1),
    Event(1, 2**53 + 1, {"handle": "h"}),
    Forward(1, FRESH, 0, b'{"jsonrpc":"2.0"}'),
    Forward(2, KEPT, 1, b""),
    Forward(3, RESENT, 2, b"\xff\x00\n"),
    Deliver(b"{}", 7, keep=True),
    Deliver(b"{}", None),
    Settled(1),
    Settled(1, keep=True),
    Goodbye(STOPPING, "The daemon stops: späť o chvíľu."),
]
ALL = {**FROM_CLIENT, **FROM_DAEMON}
VALUES: list[Any] = [None, True, 0, 1.5, "text", b"bytes", [], {}]


def packed(*fields: Any) -> bytes:
    result: bytes = msgpack.packb(list(fields))
    return result


def test_every_message_has_a_sample_and_one_direction() -> None:
    """A message that is added without a test here would go unproved."""
    assert {type(sample) for sample in SAMPLES} == set(ALL.values()) == set(Message.__subclasses__())
    assert not FROM_CLIENT.keys() & FROM_DAEMON.keys()
    for message in ALL.values():
        assert len(message.TYPES) == len(message.__slots__)


@pytest.mark.parametrize("message", SAMPLES, ids=repr)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    """Equality, hash and the readable form go with the fields."""
    back = decode_message(encode_message(message), ALL)

    assert back == message
    assert hash(back) == hash(message)
    assert repr(back) == repr(message)
    assert [back == other for other in SAMPLES].count(True) == 1


@pytest.mark.parametrize("message", SAMPLES, ids=repr)
def test_a_field_of_any_other_type_is_refused(message: Message) -> None:
    """True is not 1, text is not bytes: nothing is coerced on the wire."""
    for place, (slot, allowed) in enumerate(zip(message.__slots__, message.TYPES, strict=True)):
        for value in VALUES:
            fields = message.fields()
            fields[place] = value
            payload = packed(message.NAME, *fields)
            if type(value) in allowed:
                assert decode_message(payload, ALL).fields()[place] == value
                continue
            with pytest.raises(RemoteProtocolError, match=f"{message.NAME}.{slot} has the wrong type"):
                decode_message(payload, ALL)


@pytest.mark.parametrize("message", SAMPLES, ids=repr)
def test_missing_and_extra_fields_are_refused(message: Message) -> None:
    """Nothing is defaulted: a newer peer must ask by capability."""
    for fields in (message.fields()[:-1], [*message.fields(), None]):
        with pytest.raises(RemoteProtocolError, match=f"has {len(message.TYPES)} fields"):
            decode_message(packed(message.NAME, *fields), ALL)


@pytest.mark.parametrize("message", SAMPLES, ids=repr)
def test_a_message_from_the_wrong_side_is_refused(message: Message) -> None:
    """A daemon is never told by a client what its clients should hear."""
    wrong = FROM_DAEMON if message.NAME in FROM_CLIENT else FROM_CLIENT
    with pytest.raises(RemoteProtocolError, match="not known here"):
        decode_message(encode_message(message), wrong)


@pytest.mark.requirement("P7")
@pytest.mark.parametrize(
    "payload",
    [
        b"\xc1",
        b"\x91",
        b"\x92\xa5hello",
        packed("cancel", 1) + b"\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"\xa1\xff",
        msgpack.packb({"cancel": 1}),
        msgpack.packb("cancel"),
        msgpack.packb([]),
        msgpack.packb([b"cancel", 1]),
        msgpack.packb([None]),
        msgpack.packb([["cancel"], 1]),
        msgpack.packb(["cancel", msgpack.Timestamp(1)]),
        msgpack.packb(["response", 1, {1: 2}]),
        msgpack.packb(["x" * 10_000]),
    ],
)
def test_what_is_no_message_is_a_remote_error_of_one_line(payload: bytes) -> None:
    """Any bytes can come; the text goes back to the peer, so it is short."""
    with pytest.raises(RemoteProtocolError) as caught:
        decode_message(payload, ALL)

    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 200


@pytest.mark.parametrize(
    "message",
    [
        Response(1, {"n": 2**64}),
        Response(1, {"n": object()}),
        Response(1, {"text": "\ud800"}),
        Response(-(2**63) - 1, {}),
    ],
    ids=repr,
)
def test_what_the_wire_cannot_carry_is_a_local_error(message: Message) -> None:
    """Our own mistake, found before a byte is sent. Documents travel as JSON text for that reason."""
    with pytest.raises(LocalProtocolError, match="response cannot be encoded"):
        encode_message(message)


def test_a_value_nested_without_end_is_a_local_error() -> None:
    """The encoder has a limit; passing it is no crash."""
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(LocalProtocolError):
        encode_message(Response(1, {"value": value}))


leaves = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.binary(max_size=5)
)
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(leaves, inner, max_size=3)
)


@pytest.mark.requirement("P7")
@given(st.binary(max_size=200) | st.tuples(st.sampled_from(sorted(ALL)), st.lists(anything, max_size=9)))
def test_no_payload_fails_in_another_way(payload: Any) -> None:
    """A message or a `RemoteProtocolError`, from random bytes and from nearly right arrays."""
    if not isinstance(payload, bytes):
        payload = packed(payload[0], *payload[1])
    try:
        message = decode_message(payload, ALL)
    except RemoteProtocolError:
        return
    assert decode_message(encode_message(message), ALL) == message
