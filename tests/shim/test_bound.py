"""Ring 2: the relay in this process, with a clock that jumps, where daemons come and go.

The client has ended its input, so the relay ends by itself as soon as every line is answered.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpstated.launch import DaemonLink, DaemonNotReady, DaemonNotRunning
from mcpstated.protocol.connection import Connection
from mcpstated.protocol.errors import DaemonUnavailable
from mcpstated.protocol.messages import Deliver, Hello, Message
from mcpstated.shim.output import Output
from mcpstated.shim.parent import ParentWatch
from mcpstated.shim.relay import Relay
from support.fake_daemon import welcome

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "state_list"}}
Find = Callable[[float, Callable[[], None]], DaemonLink]


class Clock:
    """Stands in for the module `time`: real, but it can be put on."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_seconds


class Search:
    """Stands in for looking for a daemon, one step a search.

    Args:
        steps: How many seconds the search takes, and what it ends with: an error, or a daemon that says
            these messages and ends. The last step is repeated.
    """

    def __init__(self, clock: Clock, *steps: tuple[float, Exception | list[Message]]) -> None:
        self.patience_seconds: list[float] = []
        self._clock = clock
        self._steps = list(steps)
        self._ends: list[socket.socket] = []

    def find(self, timeout_seconds: float, on_wait: Callable[[], None]) -> DaemonLink:
        on_wait()
        self.patience_seconds.append(timeout_seconds)
        seconds, outcome = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        self._clock.ahead_seconds += min(seconds, timeout_seconds)
        if isinstance(outcome, Exception):
            raise outcome
        return self._lost_link(outcome)

    def _lost_link(self, messages: list[Message]) -> DaemonLink:
        """Return a greeted connection whose daemon says something and ends."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        client, daemon = Connection("client"), Connection("daemon")
        hello = Hello(1, 1, [], "shim", "test", bytes(16), "", "", 1)
        daemon.receive_data(client.send(hello))
        assert isinstance(daemon.next_event(), Hello)
        client.receive_data(daemon.send(welcome()))
        assert client.next_event() is not None
        theirs.sendall(b"".join(daemon.send(message) for message in messages))
        theirs.shutdown(socket.SHUT_WR)  # not closed: what the relay still sends meets no broken pipe
        self._ends.append(theirs)
        return DaemonLink(ours, client, welcome())

    def close(self) -> None:
        for end in self._ends:
            end.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("mcpstated.shim.relay.time", clock)
    return clock


@pytest.fixture
def relayed(tmp_path: Path) -> Iterator[Callable[[Search, list[dict[str, Any]]], list[dict[str, Any]]]]:
    """Relay some lines of a client that then ends its input; give what it was answered."""
    searches: list[Search] = []

    def run(search: Search, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        searches.append(search)
        answered = tmp_path / "answered"
        reading, writing = os.pipe()
        os.write(writing, "".join(json.dumps(line) + "\n" for line in lines).encode())
        os.close(writing)
        output = Output(os.open(answered, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        parent = ParentWatch()
        try:
            Relay(reading, output, parent, search.find).run()
        finally:
            os.close(reading)
            output.close()
            parent.close()
        return [json.loads(line) for line in answered.read_text().splitlines()]

    yield run
    for search in searches:
        search.close()


Relayed = Callable[[Search, list[dict[str, Any]]], list[dict[str, Any]]]


def error_of(answer: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = answer["result"]["structuredContent"]["error"]
    return error


@pytest.mark.requirement("P2", "P6")
@pytest.mark.usefixtures("no_leaks")
def test_searches_after_losses_get_only_what_is_left(clock: Clock, relayed: Relayed) -> None:
    """P6: the waits of losing a daemon and looking for the next one do not add up."""
    search = Search(clock, (0.0, []), (4.0, []), (4.0, []), (4.0, []))
    (answer,) = relayed(search, [CALL])
    assert error_of(answer)["code"] == "outcome_unknown"
    assert "again and again" in error_of(answer)["message"]
    assert [round(seconds) for seconds in search.patience_seconds] == [10, 10, 6, 2]


@pytest.mark.requirement("P2")
def test_a_search_that_ends_too_early_is_followed_by_another(clock: Clock, relayed: Relayed) -> None:
    """P2: only after 10 s does the client see an error."""
    search = Search(clock, (3.0, DaemonNotReady("It is leaving.")))
    (answer,) = relayed(search, [CALL])
    assert error_of(answer)["code"] == "daemon_unavailable"
    assert "It is leaving." in error_of(answer)["message"]
    assert [round(seconds) for seconds in search.patience_seconds] == [10, 7, 4, 1]


@pytest.mark.requirement("P2")
def test_a_client_that_has_ended_its_input_is_answered_at_the_bound(clock: Clock, relayed: Relayed) -> None:
    """P2: `printf ... | mcpstated shim` prints an error where there is no daemon, never nothing."""
    search = Search(clock, (10.0, DaemonNotReady("It is starting.")))
    (answer,) = relayed(search, [CALL])
    assert error_of(answer)["code"] == "daemon_unavailable"

    search = Search(clock, (3.0, DaemonNotRunning("It may not be started.")))
    (answer,) = relayed(search, [CALL])
    assert "It may not be started." in error_of(answer)["message"]


@pytest.mark.requirement("P2")
def test_a_definite_failure_is_told_at_once(clock: Clock, relayed: Relayed) -> None:
    """P2: nobody waits for what will not get better."""
    search = Search(clock, (0.0, DaemonUnavailable("The daemon could not start: out of luck.")))
    (answer,) = relayed(search, [CALL])
    assert "out of luck" in error_of(answer)["message"]
    assert len(search.patience_seconds) == 1


@pytest.mark.requirement("P2")
def test_a_line_that_was_settled_gives_the_others_the_whole_bound_again(
    clock: Clock, relayed: Relayed
) -> None:
    """P2: as long as a daemon gets something done in between, it is no hopeless case."""
    settled = {"jsonrpc": "2.0", "id": 1, "result": {}}
    answered: list[Message] = [Deliver(json.dumps(settled).encode(), 1, False)]
    search = Search(clock, (0.0, []), (6.0, answered), (6.0, []), (6.0, []))
    first, second = relayed(search, [CALL, {**CALL, "id": 2}])
    assert (first, second["id"], error_of(second)["code"]) == (settled, 2, "outcome_unknown")
    assert [round(seconds) for seconds in search.patience_seconds] == [10, 10, 10, 4]
