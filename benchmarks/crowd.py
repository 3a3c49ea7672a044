"""Many clients at once, each sending its next call as soon as an answer made room for it."""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from clients import PATIENCE_SECONDS, Client, Reply, ServerGone

PIPE_BYTES = 64 * 1024
"""What the pipe to a server holds: requests in flight must fit, or both sides could wait for each other."""


@dataclass(frozen=True, slots=True)
class CrowdRun:
    """What came of one run."""

    seconds: float
    """From the first request to the last answer."""
    replies: tuple[tuple[Reply, ...], ...]
    """By client, in the order of the answers; their seconds mean something for a window of 1 only."""

    @property
    def all_replies(self) -> list[Reply]:
        return [reply for replies in self.replies for reply in replies]


def drive(clients: Sequence[Client], lines: Sequence[Sequence[bytes]], *, window: int = 1) -> CrowdRun:
    """Send each client's lines, at most `window` of them in flight, and wait for all answers.

    Args:
        lines: One list for each client, as `Client.line` made them.
    """
    waiting = [deque(each) for each in lines]
    assert all(sum(map(len, list(each)[:window])) <= PIPE_BYTES or window == 1 for each in waiting)
    sent: list[deque[float]] = [deque() for _ in clients]
    answers: list[list[tuple[float, bytes]]] = [[] for _ in clients]
    left = sum(map(len, waiting))
    with selectors.DefaultSelector() as ready:
        for index, client in enumerate(clients):
            ready.register(client.out, selectors.EVENT_READ, index)
        started = time.perf_counter()
        for index in range(len(clients)):
            _send_next(clients[index], waiting[index], sent[index], window)
        while left:
            events = ready.select(PATIENCE_SECONDS)
            if not events:
                raise ServerGone(f"no answer within {PATIENCE_SECONDS:g} seconds")
            for key, _ in events:
                index = key.data
                for line in clients[index].received():
                    if b'"id":' not in line:
                        continue  # a notification
                    answers[index].append((time.perf_counter() - sent[index].popleft(), line))
                    left -= 1
                _send_next(clients[index], waiting[index], sent[index], window)
        seconds = time.perf_counter() - started
    return CrowdRun(seconds, tuple(tuple(Reply.parse(*answer) for answer in each) for each in answers))


def _send_next(client: Client, waiting: deque[bytes], sent: deque[float], window: int) -> None:
    while waiting and len(sent) < window:
        sent.append(time.perf_counter())
        client.send(waiting.popleft())
