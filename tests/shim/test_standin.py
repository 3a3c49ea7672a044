"""Ring 1: what a client is told when no daemon can be had."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpstated.protocol.errors import DaemonUnavailable
from mcpstated.shim.standin import answers_without_daemon

REASON = DaemonUnavailable("The disk is on fire.", hint="Its log is /x/daemon.log.")


def answers(message: object, *, was_forwarded: bool = False) -> list[Any]:
    line = message if isinstance(message, bytes) else json.dumps(message).encode()
    return [
        json.loads(answer) for answer in answers_without_daemon(line, REASON, was_forwarded=was_forwarded)
    ]


def tool_call(**members: object) -> dict[str, object]:
    params = {"name": "state_patch", "arguments": {"handle": "notes_1", "ops": []}, **members}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


@pytest.mark.requirement("P2", "C15")
def test_a_tool_call_gets_a_result_that_says_that_nothing_was_done() -> None:
    """C15: a failure is a result that a model reads, with text first and the code beside it."""
    (answer,) = answers(tool_call())
    result = answer["result"]
    assert (answer["jsonrpc"], answer["id"], result["isError"]) == ("2.0", 7, True)
    text = result["content"][0]["text"]
    assert text == "Nothing was done: The disk is on fire. Its log is /x/daemon.log."
    assert result["structuredContent"] == {
        "ok": False,
        "error": {
            "code": "daemon_unavailable",
            "message": "Nothing was done: The disk is on fire.",
            "hint": "Its log is /x/daemon.log.",
        },
    }
    assert "resultType" not in result


@pytest.mark.requirement("P2")
def test_a_tool_call_that_some_daemon_had_gets_an_unknown_outcome() -> None:
    """P2: it may have been applied; claiming either would make a model repeat or drop it."""
    (answer,) = answers(tool_call(), was_forwarded=True)
    error = answer["result"]["structuredContent"]["error"]
    assert (error["code"], error["handle"]) == ("outcome_unknown", "notes_1")
    assert "may or may not have been applied" in error["message"]
    assert "The disk is on fire." in error["message"]
    assert answer["result"]["content"][0]["text"].startswith("The call may or may not")


def test_a_modern_request_gets_a_result_that_is_marked_complete() -> None:
    """The era whose requests carry their version in `_meta` requires the result's type."""
    (answer,) = answers(tool_call(_meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"}))
    assert answer["result"]["resultType"] == "complete"


@pytest.mark.requirement("P2")
@pytest.mark.parametrize("arguments", [None, [], "x", {"handle": 7}])
def test_odd_arguments_do_not_matter(arguments: object) -> None:
    """P2: the answer must come whatever the call looks like."""
    (answer,) = answers(tool_call(arguments=arguments), was_forwarded=True)
    assert "handle" not in answer["result"]["structuredContent"]["error"]
    (answer,) = answers({"jsonrpc": "2.0", "id": 1, "method": "tools/call"})
    assert answer["result"]["isError"] is True


@pytest.mark.requirement("P2")
@pytest.mark.parametrize("id_", [0, "abc", "", -1, 2**53 + 1, "\ud800"])
def test_any_other_request_gets_an_error_under_its_own_id(id_: object) -> None:
    """C36: an id comes back with its value and type, or the client waits for ever."""
    (answer,) = answers({"jsonrpc": "2.0", "id": id_, "method": "initialize"})
    assert answer["id"] == id_
    assert type(answer["id"]) is type(id_)
    assert answer["error"] == {"code": -32000, "message": "The disk is on fire. Its log is /x/daemon.log."}


def test_what_wants_no_answer_gets_none() -> None:
    """A notification and a reply are dropped: answering them would break the client."""
    assert answers({"jsonrpc": "2.0", "method": "notifications/initialized"}) == []
    assert answers({"jsonrpc": "2.0", "id": 3, "result": {}}) == []


@pytest.mark.requirement("C36", "C11")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{bad", -32700),
        (b"\xff\xfe\xff", -32700),
        (b"[]", -32600),
        (b"42", -32600),
        (b"[" * 200_000, -32600),
        (b'{"id":1.5,"method":"ping"}', -32600),
        (b'{"id":null,"method":"ping"}', -32600),
        (b'{"id":true,"method":"ping"}', -32600),
    ],
)
def test_what_is_no_message_is_refused_without_an_id(line: bytes, code: int) -> None:
    """C36: the answers are those that the daemon would give."""
    (answer,) = answers(line)
    assert (answer["id"], answer["error"]["code"]) == (None, code)


@pytest.mark.requirement("C36")
def test_a_byte_order_mark_and_a_carriage_return_are_tolerated() -> None:
    """C36: clients that write them are answered like any other."""
    (answer,) = answers(b'\xef\xbb\xbf{"id":1,"method":"ping"}\r')
    assert answer["id"] == 1


def test_an_error_without_a_hint_gets_a_general_one() -> None:
    """A model that reads the text must learn what somebody can do."""
    (line,) = answers_without_daemon(
        b'{"id":1,"method":"ping"}', DaemonUnavailable("No."), was_forwarded=False
    )
    assert "mcpstated status" in json.loads(line)["error"]["message"]
