"""Ring 1: JSON-RPC lines in and out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.daemon.envelope import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    Blank,
    Call,
    Malformed,
    Notice,
    Reply,
    error_line,
    read_line,
    write_line,
)


def line(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


@pytest.mark.requirement("C36")
@pytest.mark.parametrize("id_", [0, 7, -1, 2**53 + 1, 10**30, "abc", "", "7", "\u00e9"])
def test_legal_ids_come_back_with_value_and_type(id_: object) -> None:
    """Clients match answers by id, and some tell 7 from "7"."""
    envelope = read_line(line(id=id_, method="ping"))

    assert isinstance(envelope, Call)
    assert envelope.id == id_
    assert type(envelope.id) is type(id_)
    assert json.loads(write_line({"id": envelope.id}))["id"] == id_


@pytest.mark.requirement("C36")
@pytest.mark.parametrize("id_", [1.5, None, {}, [], True])
def test_an_id_that_is_no_string_or_integer_is_refused_with_id_null(id_: object) -> None:
    """MCP narrows JSON-RPC: a request's id is a string or an integer."""
    envelope = read_line(line(id=id_, method="ping"))

    assert isinstance(envelope, Malformed)
    assert (envelope.id, envelope.code) == (None, INVALID_REQUEST)


@pytest.mark.requirement("C36")
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{bad", PARSE_ERROR),
        (b"\xff\xfe", PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b"42", INVALID_REQUEST),
        (b'"text"', INVALID_REQUEST),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (b'{"id":1,"method":"ping"}', INVALID_REQUEST),
    ],
)
def test_a_line_that_is_no_message_gets_one_error(raw: bytes, code: int) -> None:
    """One bad line costs one error, whatever it is."""
    envelope = read_line(raw)

    assert isinstance(envelope, Malformed)
    assert envelope.code == code


@pytest.mark.requirement("C36")
@pytest.mark.parametrize("wrap", [b"\xef\xbb\xbf%s", b"%s\r", b"  %s  ", b"\xef\xbb\xbf%s\r"])
def test_byte_order_mark_and_carriage_return_are_tolerated(wrap: bytes) -> None:
    """Windows editors and shells put them there."""
    envelope = read_line(wrap % line(id=1, method="ping"))

    assert envelope == Call(1, "ping", None)


@pytest.mark.parametrize("raw", [b"", b"\r", b"   ", b"\xef\xbb\xbf"])
def test_an_empty_line_says_nothing(raw: bytes) -> None:
    """Empty lines come from heredocs and echo; they are no error."""
    assert isinstance(read_line(raw), Blank)


def test_messages_are_told_apart() -> None:
    """Only a request is answered, so the three kinds must never be confused."""
    assert read_line(line(method="notifications/initialized")) == Notice("notifications/initialized", None)
    assert read_line(line(id=3, result={})) == Reply(3)
    assert read_line(line(id=3, error={"code": 1, "message": "x"})) == Reply(3)
    assert read_line(line(id=3, method="m", params={"a": 1})) == Call(3, "m", {"a": 1})


@pytest.mark.requirement("C37")
def test_params_that_are_a_list_are_refused_under_the_requests_id() -> None:
    """The client must learn which of its calls was wrong."""
    envelope = read_line(line(id=9, method="tools/call", params=[1]))

    assert isinstance(envelope, Malformed)
    assert (envelope.id, envelope.code) == (9, INVALID_PARAMS)


@pytest.mark.requirement("C11")
@pytest.mark.parametrize("depth", [100_000, 300_000])  # above what any parser takes
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_line_nested_too_deeply_is_refused_under_its_own_id(depth: int, where: str) -> None:
    """The parser gives up on the line, but the client must not wait for an answer for ever."""
    nested = "[" * depth + "]" * depth
    id_member = '"id":"x,}{7"'
    inner = f'"params":{{"id":99,"deep":{nested}}}'
    members = [id_member, inner] if where == "before" else [inner, id_member]
    envelope = read_line(("{" + ",".join(['"jsonrpc":"2.0"', '"method":"m"', *members]) + "}").encode())

    assert isinstance(envelope, Malformed)
    assert (envelope.id, envelope.code) == ("x,}{7", INVALID_PARAMS)


def test_an_integer_of_too_many_digits_is_refused_under_its_own_id() -> None:
    """4,300 digits is the limit of exact integers; a longer one must not be rounded in silence."""
    envelope = read_line(b'{"jsonrpc":"2.0","id":5,"method":"m","params":{"n":' + b"9" * 5000 + b"}}")

    assert isinstance(envelope, Malformed)
    assert (envelope.id, envelope.code) == (5, INVALID_PARAMS)


@pytest.mark.requirement("C33")
def test_a_line_out_is_one_line_under_any_splitter() -> None:
    """U+2028, U+2029 and U+0085 end a line for some splitters; the value must survive all of them."""
    value = {"t": "a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1e"}
    raw = write_line({"result": value})

    assert raw.decode().splitlines() == [raw.decode()]
    assert json.loads(raw)["result"] == value


def test_what_utf8_cannot_carry_is_escaped() -> None:
    """An id with half a surrogate pair is the client's own; it goes back as it came."""
    raw = write_line({"id": "\ud800"})

    assert json.loads(raw)["id"] == "\ud800"


def test_an_error_line_is_a_json_rpc_error() -> None:
    """id null is the one way to answer a line whose id could not be read."""
    assert json.loads(error_line(None, PARSE_ERROR, "no")) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": PARSE_ERROR, "message": "no"},
    }


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_raise(raw: bytes) -> None:
    """P7: a client that lies costs only itself, so garbage must end as a value."""
    read_line(raw)


@given(st.text(max_size=300))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    """The same for anything that is UTF-8 at least."""
    read_line(text.encode("utf-8", "surrogatepass"))
