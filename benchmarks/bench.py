"""What every measure works with: the servers, how much to measure, stores that clean up after themselves."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clients import Client
from servers import Mcpstate, Mcpstated, Server, ServerMemory


@dataclass(frozen=True, slots=True)
class Counts:
    """How much is measured of each figure."""

    starts: int = 20
    cold_starts: int = 8
    rounds: int = 25
    """Of alternating batches, for everything that one client does."""
    calls_per_round: int = 20
    big_rounds: int = 10
    big_calls_per_round: int = 6
    crowd_rounds: int = 3
    crowd_clients: int = 16
    crowd_calls: int = 100
    """By each client in each round; the same for both sides, for the document grows with every one."""
    list_handles: int = 10_000
    list_rounds: int = 12
    many_handles: int = 100_000
    lost_calls: int = 25
    fair_rounds: int = 4
    fair_calls: int = 250


QUICK = Counts(
    starts=3,
    cold_starts=1,
    rounds=3,
    calls_per_round=10,
    big_rounds=2,
    big_calls_per_round=3,
    crowd_rounds=1,
    crowd_clients=4,
    crowd_calls=20,
    list_handles=500,
    list_rounds=2,
    many_handles=1_000,
    lost_calls=5,
    fair_rounds=1,
    fair_calls=40,
)
"""Enough to see that everything works; its figures mean nothing."""


class Store:
    """One store of one server, in a directory of its own, with the clients that use it."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self._clients: list[Client] = []

    def start(self) -> Client:
        """Start a client's server without a handshake."""
        client = self.server.start(self.directory)
        self._clients.append(client)
        return client

    def client(self) -> Client:
        """Start a client's server and shake hands."""
        client = self.start()
        client.initialize()
        return client

    def close(self, client: Client) -> None:
        self._clients.remove(client)
        client.close()

    def pids(self) -> list[int]:
        """Return all processes that serve this store now."""
        return [client.process.pid for client in self._clients] + self.server.shared_pids(self.directory)

    def end(self) -> None:
        """End everything that was started."""
        while self._clients:
            self._clients.pop().close()
        self.server.stop(self.directory)


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the benchmark."""

    ours: Mcpstated
    theirs: Mcpstate
    memory: ServerMemory | None
    """None where there is no Node.js."""
    python: str
    """The interpreter of the environment that our wheel is installed in."""
    counts: Counts
    scratch: Path

    @contextmanager
    def store(self, server: Server, **limits: int) -> Iterator[Store]:
        """Give a new, empty store; nothing of it is left afterwards.

        Args:
            limits: Limits of mcpstated that the store's daemon is configured with.
        """
        directory = Path(tempfile.mkdtemp(prefix=f"{server.name}-", dir=self.scratch))
        if limits:
            assert isinstance(server, Mcpstated)
            server.set_limits(directory, **limits)
        store = Store(server, directory)
        try:
            yield store
        finally:
            store.end()
            shutil.rmtree(directory, ignore_errors=True)


def say(text: str) -> None:
    """Tell the person who waits what is going on."""
    print(text, file=sys.stderr, flush=True)
