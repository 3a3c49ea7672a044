"""Ring 1: whatever a client writes, its lines are cut, read and answered by the rules."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.daemon.envelope import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    Call,
    Envelope,
    Malformed,
    Notice,
    Reply,
    error_line,
    read_line,
    unread,
)
from mcpstated.shim.lines import KEPT_BYTES, LineReader, Skipped
from mcpstated.shim.skipped import answer_to_skipped
from support.mutations import mutated, portions

pytestmark = pytest.mark.requirement("P7", "C36")

SAMPLES = [
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"state_load","arguments":{"handle":"h_1"}}}',
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}}',
    b'{"jsonrpc":"2.0","id":"\\ud83d\\ude00","result":{}}',
    b'{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"\xc3\xa9\xe2\x80\xa8"}}',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1e5,"method":"ping"}\r',
    b'{"id":' + b"9" * 5_000 + b',"jsonrpc":"2.0","method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":3,"method":"m","params":{"x":' + b"[" * 120_000 + b"]" * 120_000 + b"}}",
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    b'{"a":NaN,"b":-Infinity,"id":null}',
    b"\n",
    b"\r\n",
]
lines = st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
CODES = {PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS}


def check(envelope: Envelope) -> None:
    """Fail unless an envelope is one of those that the relay knows, with fields of the right types."""
    assert type(envelope) in get_args(Envelope)
    if isinstance(envelope, Call):
        assert type(envelope.id) in (str, int)
    if isinstance(envelope, Malformed | Reply):
        assert type(envelope.id) in (str, int, type(None))
    if isinstance(envelope, Call | Notice):
        assert type(envelope.method) is str
        assert envelope.params is None or type(envelope.params) is dict
    if isinstance(envelope, Malformed):
        assert envelope.code in CODES
        answer = error_line(envelope.id, envelope.code, envelope.reason)
        assert b"\n" not in answer
        assert json.loads(answer)["id"] == envelope.id


@given(lines | mutated(SAMPLES))
def test_any_line_is_one_of_the_envelopes_and_can_be_answered(line: bytes) -> None:
    """The relay matches on five classes; an answer goes out on one line under the same id."""
    check(read_line(line))
    check(unread(line, "It was not read."))


@given(st.sampled_from(SAMPLES), st.integers(0, 300))
def test_a_line_that_is_cut_anywhere_is_read_as_what_is_left(line: bytes, place: int) -> None:
    """A client that dies in the middle of a line leaves half of it."""
    check(read_line(line[:place]))
    check(read_line(line[-place:]))


@given(
    mutated([*SAMPLES, *(line + b"\n" for line in SAMPLES)]) | lines,
    st.sampled_from([1, 40, 5_000]),
    st.data(),
)
def test_the_shim_cuts_any_bytes_into_the_same_lines_and_holds_no_more_than_one(
    data: bytes, limit: int, draw: st.DataObject
) -> None:
    """What comes out is the input between its newlines, or the two ends of it, however it was carried."""
    expected: list[bytes | Skipped] = []
    for line in data.split(b"\n"):
        if len(line) > limit:
            expected.append(Skipped(line[:KEPT_BYTES], line[-KEPT_BYTES:]))
        elif line.strip():
            expected.append(line)
    reader = LineReader(limit)
    found: list[bytes | Skipped] = []
    for piece in draw.draw(portions(data)):
        found += reader.feed(piece)
        assert len(reader._begun) <= max(limit, KEPT_BYTES)
        assert reader._head is None or len(reader._head) <= KEPT_BYTES
    found += reader.finish()

    assert found == expected
    for line in found:
        if isinstance(line, Skipped):
            answer = json.loads(answer_to_skipped(line.head, line.tail, limit))
            assert type(answer["id"]) in (str, int, type(None))


def test_the_code_for_faults_of_ours_is_never_a_clients() -> None:
    """What a client wrote is answered as its own mistake."""
    assert INTERNAL_ERROR not in CODES
