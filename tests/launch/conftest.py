"""What tests of finding and starting a daemon share: stand-ins that need no second thread."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpstated.launch import DaemonLink, ensure_daemon, make_hello
from mcpstated.protocol.connection import Connection
from mcpstated.protocol.messages import Hello, Message, Welcome
from mcpstated.protocol.paths import Paths

READY_DAEMON = Path(__file__).parent.parent / "support" / "ready_daemon.py"


@pytest.fixture
def paths(data_dir: Path) -> Paths:
    """A store of the test's own."""
    return Paths(str(data_dir))


@pytest.fixture
def hello() -> Hello:
    return make_hello("library", environ={})


@pytest.fixture
def command() -> Callable[[str], list[str]]:
    """Return the command of a daemon that serves, fails, dies, is mute or leaves."""
    return lambda act: [sys.executable, str(READY_DAEMON), "--act", act]


@pytest.fixture
def ensure(
    paths: Paths, hello: Hello, command: Callable[[str], list[str]]
) -> Iterator[Callable[..., DaemonLink]]:
    """Find or start a daemon as a client does; connections are closed with the test."""
    links: list[DaemonLink] = []

    def run(act: str = "serve", **options: Any) -> DaemonLink:
        arguments = {"timeout_seconds": 20.0, "environ": dict(os.environ), "command": command(act), **options}
        link = ensure_daemon(options.pop("paths", paths), hello, **arguments)
        links.append(link)
        return link

    yield run
    for link in links:
        link.sock.close()


@pytest.fixture
def starts(data_dir: Path) -> Callable[[], list[dict[str, Any]]]:
    """Return what each daemon that was started found itself in."""

    def read() -> list[dict[str, Any]]:
        path = data_dir / "starts"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return read


class Greeter:
    """A daemon's end that acts only when the client comes by: use `on_wait` as the client's `on_wait`.

    Args:
        path: Where it listens.
        after: How often the client must come by before something happens.
    """

    def __init__(self, path: str, *, after: int = 1) -> None:
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(path)
        self.listening.listen(8)
        self.listening.settimeout(5)
        self.answer: Message | bytes | None = Welcome(1, [], "fake", "instance", os.getpid(), {})
        """Sent behind the hello; None hangs up at once."""
        self.waits = 0
        self.hellos: list[Message] = []
        self._after = after
        self._accepted: list[socket.socket] = []

    def on_wait(self) -> None:
        self.waits += 1
        if self.waits != self._after:
            return
        accepted, _address = self.listening.accept()
        self._accepted.append(accepted)
        connection = Connection("daemon")
        while (hello := connection.next_event()) is None:
            connection.receive_data(accepted.recv(65536))
        self.hellos.append(hello)
        if self.answer is None:
            accepted.close()
        else:
            accepted.sendall(self.answer if isinstance(self.answer, bytes) else connection.send(self.answer))

    def act_after(self, waits: int) -> None:
        """Begin anew: act when the client has come by so often."""
        self.waits, self._after = 0, waits

    def drop_one(self) -> None:
        """Accept a connection and say nothing."""
        self._accepted.append(self.listening.accept()[0])

    def close(self) -> None:
        for end in (self.listening, *self._accepted):
            end.close()


@pytest.fixture
def greeter(paths: Paths) -> Iterator[Greeter]:
    """A daemon that greets when it is first waited for."""
    greeter = Greeter(paths.socket)
    yield greeter
    greeter.close()
