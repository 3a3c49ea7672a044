"""Ring 1: both ends of the wire, wired to each other and to garbage."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol.connection import Connection
from mcpstated.protocol.frames import encode_frame
from mcpstated.protocol.messages import (
    FRESH,
    FROM_CLIENT,
    FROM_DAEMON,
    GOODBYE_REASONS,
    REFUSED,
    ROLES,
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
    encode_message,
)
from mcpstated.protocol.violations import LocalProtocolError, RemoteProtocolError

SHIM_ID = b"0123456789abcdef"
WELCOME = Welcome(1, [], "0.1.0", "instance", 1, {})
GOODBYE = Goodbye(STOPPING, "The daemon stops.")


def hello(role: str = "shim", **changes: Any) -> Hello:
    message = Hello(1, 1, [], role, "0.1.0", SHIM_ID if role == "shim" else b"", "", "", 1)
    for name, value in changes.items():
        setattr(message, name, value)
    return message


def read(connection: Connection) -> list[Message]:
    messages = []
    while (message := connection.next_event()) is not None:
        messages.append(message)
    return messages


class Pair:
    """A client's and a daemon's end; whatever one sends is read by the other, and must come out equal."""

    def __init__(self, role: str | None = None) -> None:
        self.client = Connection("client")
        self.daemon = Connection("daemon")
        if role is not None:
            self.from_client(hello(role))
            self.from_daemon(WELCOME)

    def from_client(self, *messages: Message) -> None:
        self._pass(self.client, self.daemon, messages)

    def from_daemon(self, *messages: Message) -> None:
        self._pass(self.daemon, self.client, messages)

    def _pass(self, sender: Connection, reader: Connection, messages: tuple[Message, ...]) -> None:
        data = b"".join(map(sender.send, messages))
        reader.receive_data(data)
        assert read(reader) == list(messages)


def wire(*messages: Message) -> bytes:
    """Return bytes that no rule of a connection has been asked about."""
    return b"".join(encode_frame(encode_message(message, 1)) for message in messages)


def broken(connection: Connection, data: bytes, reason: str) -> None:
    connection.receive_data(data)
    with pytest.raises(RemoteProtocolError, match=reason):
        read(connection)
    connection.receive_data(wire(hello(), WELCOME))
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match=reason):
            connection.next_event()


def test_a_shim_forwards_and_the_daemon_delivers() -> None:
    """The whole life of a shim's connection."""
    pair = Pair()
    pair.from_client(hello())
    assert pair.daemon.peer_role == pair.client.peer_role == "shim"
    pair.from_daemon(WELCOME)
    pair.from_client(Forward(1, FRESH, 0, b"{}"), Forward(2, FRESH, 0, b"{}"))
    pair.from_daemon(Deliver(b"{}", 1, keep=True), Settled(2), Deliver(b"{}", None), GOODBYE)


@pytest.mark.parametrize("role", ["library", "cli"])
def test_other_clients_make_requests(role: str) -> None:
    """The whole life of a program's connection."""
    pair = Pair(role)
    pair.from_client(Request(1, "status", {}), Request(2, "watch", {}), Cancel(2))
    pair.from_daemon(Response(1, {}), Event(2, 1, {}), Failure(2, {"code": "x"}), GOODBYE)


def test_the_daemon_may_refuse_before_any_welcome() -> None:
    """Version skew and full houses are said, not just hung up on."""
    for sent in ([], [hello()]):
        pair = Pair()
        pair.from_client(*sent)
        pair.from_daemon(Goodbye(REFUSED, "Too many sessions."))


def test_messages_come_out_the_same_in_portions_of_any_size() -> None:
    """Whole is byte by byte."""
    messages = [hello(), Forward(1, FRESH, 0, b"x" * 1_000), Forward(2, FRESH, 0, b"")]
    stream = wire(*messages)
    for size in (1, 2, 3, 7, 1_000, len(stream)):
        connection = Connection("daemon")
        found = []
        for start in range(0, len(stream), size):
            connection.receive_data(stream[start : start + size])
            found.extend(read(connection))
        assert found == messages
        assert not connection.is_inside_frame


@pytest.mark.requirement("P7")
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ([Forward(1, FRESH, 0, b"")], "forward came before hello"),
        ([Request(1, "status", {})], "request came before hello"),
        ([Cancel(1)], "cancel came before hello"),
        ([hello(), hello()], "hello came twice"),
        ([hello(), Request(1, "status", {})], "a shim sends no request"),
        ([hello(), Cancel(1)], "a shim sends no cancel"),
        ([hello("cli"), Forward(1, FRESH, 0, b"")], "only a shim forwards"),
        ([hello("library"), Forward(1, FRESH, 0, b"")], "only a shim forwards"),
        ([hello(), Forward(0, FRESH, 0, b"")], "out of range"),
        ([hello(), Forward(-1, FRESH, 0, b"")], "out of range"),
        ([hello(), Forward(1, 3, 0, b"")], "out of range"),
        ([hello(), Forward(1, -1, 0, b"")], "out of range"),
        ([hello(), Forward(1, FRESH, -1, b"")], "out of range"),
        ([hello(role="root")], "unknown role 'root'"),
        ([hello(role="")], "unknown role"),
        ([hello(shim_id=b"")], "shim_id"),
        ([hello(shim_id=b"x" * 15)], "shim_id"),
        ([hello(shim_id=b"x" * 17)], "shim_id"),
        ([hello("cli", shim_id=b"x" * 15)], "shim_id"),
        ([hello(protocol_min=0)], "empty protocol range"),
        ([hello(protocol_min=3, protocol_max=2)], "empty protocol range"),
        ([hello(capabilities=["a", 1])], "capabilities"),
        ([WELCOME], "not known here"),
        ([hello(), Deliver(b"", None)], "not known here"),
        ([hello(), GOODBYE], "not known here"),
    ],
)
def test_a_client_that_breaks_the_rules_is_cut_off_for_good(sent: list[Message], reason: str) -> None:
    """A reason for the peer, and no second chance: what follows is not trusted."""
    broken(Connection("daemon"), wire(*sent), reason)


@pytest.mark.parametrize(
    ("role", "sent", "reason"),
    [
        (None, [WELCOME], "out of turn"),
        (None, [Response(1, {})], "came before welcome"),
        ("cli", [WELCOME], "out of turn"),
        ("shim", [Response(1, {})], "response is not for this role"),
        ("shim", [Failure(1, {})], "failure is not for this role"),
        ("shim", [Event(1, 1, {})], "event is not for this role"),
        ("cli", [Deliver(b"", None)], "deliver is not for this role"),
        ("library", [Settled(1)], "settled is not for this role"),
        ("cli", [Goodbye("bored", "x")], "unknown reason 'bored'"),
        ("cli", [GOODBYE, Response(1, {})], "response came after goodbye"),
        ("shim", [GOODBYE, Deliver(b"", 1)], "deliver came after goodbye"),
        ("shim", [GOODBYE, GOODBYE], "goodbye came after goodbye"),
        ("cli", [hello()], "not known here"),
        ("shim", [Forward(1, FRESH, 0, b"")], "not known here"),
    ],
)
def test_a_daemon_that_breaks_the_rules_is_not_believed(
    role: str | None, sent: list[Message], reason: str
) -> None:
    """Whatever answers at the socket, a client gives up with a reason and never acts on it."""
    broken(Pair(role).client, wire(*sent), reason)


def test_a_welcome_before_the_daemon_could_know_anybody_is_refused() -> None:
    """The client said hello but the daemon speaks twice."""
    pair = Pair()
    pair.from_client(hello())
    broken(pair.client, wire(WELCOME, WELCOME), "out of turn")


@pytest.mark.parametrize(
    ("role", "message"),
    [
        (None, Forward(1, FRESH, 0, b"")),
        (None, Request(1, "status", {})),
        (None, WELCOME),
        (None, GOODBYE),
        ("shim", hello()),
        ("shim", Request(1, "status", {})),
        ("shim", Cancel(1)),
        ("cli", Forward(1, FRESH, 0, b"")),
        ("cli", Response(1, {})),
    ],
)
def test_a_client_is_kept_from_breaking_the_rules(role: str | None, message: Message) -> None:
    """The mistake shows where it is made, not at the peer; the connection stays usable."""
    pair = Pair(role)
    with pytest.raises(LocalProtocolError):
        pair.client.send(message)
    if role is None:
        pair.from_client(hello())
    else:
        pair.from_daemon(GOODBYE)


@pytest.mark.parametrize(
    ("role", "message"),
    [
        (None, WELCOME),
        (None, Deliver(b"", None)),
        (None, Response(1, {})),
        (None, hello()),
        ("shim", WELCOME),
        ("shim", Response(1, {})),
        ("shim", Failure(1, {})),
        ("shim", Event(1, 1, {})),
        ("shim", Forward(1, FRESH, 0, b"")),
        ("cli", Deliver(b"", None)),
        ("cli", Settled(1)),
    ],
)
def test_a_daemon_is_kept_from_breaking_the_rules(role: str | None, message: Message) -> None:
    """The same on the other side; a goodbye can still be sent."""
    pair = Pair(role)
    with pytest.raises(LocalProtocolError):
        pair.daemon.send(message)
    pair.from_daemon(GOODBYE)


def test_nothing_is_sent_after_goodbye() -> None:
    """A peer may stop reading once it has seen one."""
    pair = Pair("cli")
    pair.from_daemon(GOODBYE)
    for message in (Response(1, {}), GOODBYE):
        with pytest.raises(LocalProtocolError, match="after goodbye"):
            pair.daemon.send(message)


def test_a_message_that_does_not_fit_leaves_the_connection_as_it_was() -> None:
    """The sender can say something shorter instead; a hello or goodbye that was not sent was not said."""
    client, daemon = Connection("client", 100), Connection("daemon", 100)
    with pytest.raises(LocalProtocolError, match="100 fit a frame"):
        client.send(hello(build="x" * 200))
    daemon.receive_data(client.send(hello("cli")))
    assert read(daemon) == [hello("cli")]
    client.receive_data(daemon.send(WELCOME))
    assert read(client) == [WELCOME]

    with pytest.raises(LocalProtocolError, match="100 fit a frame"):
        daemon.send(Response(1, {"x": "y" * 200}))
    with pytest.raises(LocalProtocolError, match="cannot be encoded"):
        daemon.send(Goodbye(STOPPING, "\ud800"))
    with pytest.raises(LocalProtocolError, match="100 fit a frame"):
        daemon.send(Goodbye(STOPPING, "x" * 200))
    client.receive_data(daemon.send(Response(1, {})) + daemon.send(GOODBYE))
    assert read(client) == [Response(1, {}), GOODBYE]


@pytest.mark.requirement("P6")
def test_a_client_takes_over_the_limit_of_the_daemon() -> None:
    """Both directions follow what welcome says."""
    pair = Pair("cli")
    pair.client.set_max_frame_bytes(100)

    with pytest.raises(LocalProtocolError, match="100 fit a frame"):
        pair.client.send(Request(1, "save", {"state": "x" * 200}))
    broken(pair.client, wire(Response(1, {"x": "y" * 200})), "1 to 100 are allowed")


def test_a_connection_has_one_of_two_roles() -> None:
    """A typo must not become a third one."""
    with pytest.raises(LocalProtocolError):
        Connection("server")


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("role", ["client", "daemon"])
def test_a_frame_above_the_limit_ends_either_side_at_its_header(role: str) -> None:
    """Four bytes are enough to know."""
    broken(Connection(role, 1_000), (1_001).to_bytes(4, "big"), "1001 bytes was announced")


small = st.none() | st.booleans() | st.integers(-2, 4) | st.sampled_from(["", "x", *ROLES, *GOODBYE_REASONS])
fields = small | st.binary(max_size=20) | st.just([]) | st.just({})
nearly_right = st.builds(
    lambda name, values: encode_frame(msgpack.packb([name, *values])),
    st.sampled_from(sorted({**FROM_CLIENT, **FROM_DAEMON})),
    st.lists(fields, max_size=9),
)
right = st.sampled_from(
    [hello(), hello("cli"), WELCOME, GOODBYE, Forward(1, FRESH, 0, b"{}"), Cancel(1)]
).map(wire)
streams = st.lists(st.binary(max_size=20) | nearly_right | right, max_size=6).map(b"".join)


@pytest.mark.requirement("P7")
@given(st.sampled_from(["client", "daemon", "greeted client", "greeted daemon"]), streams, st.integers(1, 50))
def test_no_bytes_make_anything_but_a_remote_error(role: str, stream: bytes, portion: int) -> None:
    """Garbage, half-right and right frames in any mixture: a message, silence, or `RemoteProtocolError`."""
    pair = Pair("shim" if role.startswith("greeted") else None)
    connection = pair.client if role.endswith("client") else pair.daemon
    for start in range(0, len(stream), portion):
        connection.receive_data(stream[start : start + portion])
        try:
            messages = read(connection)
        except RemoteProtocolError as error:
            text = str(error)
            break
        assert all(isinstance(message, Message) for message in messages)
    else:
        return
    assert text.isprintable()
    assert len(text) < 200
    with pytest.raises(RemoteProtocolError):
        connection.next_event()
