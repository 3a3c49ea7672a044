"""Appending to one handle with many clients at once, and looking for every value afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from clients import Client
from crowd import drive
from documents import ITEM, LIST, append
from servers import Server


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one run."""

    total_seconds: float
    seconds: list[float]
    """Of each call."""
    refused: int
    landed: int
    """Values that are in the document exactly once."""


def append_together(server: Server, clients: Sequence[Client], *, calls: int) -> Outcome:
    """Let every client append that many values of 100 bytes, no two the same, to one new handle."""
    handle = str(clients[0].must("state_save", {"kind": "bench", "state": {LIST: []}})["handle"])
    lines = [
        [
            client.line(
                "tools/call", {"name": "state_patch", "arguments": append(handle, _value(index, call))}
            )
            for call in range(calls)
        ]
        for index, client in enumerate(clients)
    ]
    run = drive(clients, lines)
    replies = run.all_replies
    found = Counter(clients[0].must("state_load", server.load(handle, LIST))["state"])
    sent = [_value(index, call) for index in range(len(clients)) for call in range(calls)]
    return Outcome(
        total_seconds=run.seconds,
        seconds=[reply.seconds for reply in replies],
        refused=sum(reply.is_refused for reply in replies),
        landed=sum(found[value] == 1 for value in sent),
    )


def _value(client: int, call: int) -> str:
    name = f"{client}/{call} "
    return name + ITEM[len(name) :]
