"""Ring 1: answering a line of which only the ends are known."""

from __future__ import annotations

import json

import pytest

from mcpstated.shim.skipped import answer_to_skipped

LONG = "x" * 20_000


def ends(message: str) -> tuple[bytes, bytes]:
    data = message.encode()
    return data[:4096], data[-4096:]


@pytest.mark.requirement("P6")
@pytest.mark.parametrize(
    ("message", "id_"),
    [
        ('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"x":"%s"}}', 7),
        ('{"jsonrpc": "2.0", "id": "a,}b", "params": {"x": "%s"}}', "a,}b"),
        ('{"method":"m","params":{"id":1,"x":"%s"},"jsonrpc":"2.0","id":8}', 8),
        ('{"method":"m","params":{"x":"%s","id":1},"id":"nine"}', "nine"),
        ('{"id":10,"params":{"x":"%s","id":1}}', 10),
        ('{"method":"m","params":{"x":"%s","id":1}}', None),
        ('{"method":"m","params":{"id":1,"x":"%s"}}', None),
        ('{"id":1.5,"params":{"x":"%s"}}', None),
        ('{"id":true,"params":{"x":"%s"}}', None),
        ("%s", None),
    ],
)
def test_the_id_is_found_at_either_end_and_only_in_the_outermost_object(message: str, id_: object) -> None:
    """A client waits for its own id; an answer under any other would never reach the caller."""
    answer = json.loads(answer_to_skipped(*ends(message % LONG), 16_000))

    assert answer["id"] == id_
    assert type(answer["id"]) is type(id_)
    assert answer["error"]["code"] == -32600
    assert "16000 bytes" in answer["error"]["message"]


def test_an_id_that_is_cut_off_is_not_believed() -> None:
    """The first half of a number is another number."""
    head = b'{"jsonrpc":"2.0","id":123'

    assert json.loads(answer_to_skipped(head, b"", 10))["id"] is None
