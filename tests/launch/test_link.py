"""Ring 1 and 3: one connection to a daemon that runs, and what else may be found in its place."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcpstated.launch import DaemonNotReady, DaemonNotRunning, VersionSkew, connect, make_hello
from mcpstated.protocol.errors import DaemonUnavailable, InvalidInput
from mcpstated.protocol.messages import REFUSED, SKEW, STOPPING, Goodbye, Hello, Welcome
from mcpstated.protocol.paths import Paths

if TYPE_CHECKING:
    from conftest import Greeter


def test_a_daemon_that_greets_is_connected_to(paths: Paths, hello: Hello, greeter: Greeter) -> None:
    """The link is ready for use: greeted, not blocking, with the daemon's limit for frames."""
    greeter.answer = Welcome(1, [], "fake", "the instance", 7, {"max_frame_bytes": 123_456})
    link = connect(paths, hello, timeout_seconds=10, on_wait=greeter.on_wait)
    with link.sock:
        assert greeter.hellos == [hello]
        assert link.welcome.instance == "the instance"
        assert link.sock.getblocking() is False
        assert link.connection.max_frame_bytes == 123_456


def test_no_socket_means_not_running(paths: Paths, hello: Hello) -> None:
    """The only two answers that mean it are ENOENT and ECONNREFUSED."""
    with pytest.raises(DaemonNotRunning):
        connect(paths, hello, timeout_seconds=1)


def test_a_dead_socket_means_not_running_and_stays(paths: Paths, hello: Hello, greeter: Greeter) -> None:
    """C04: only the daemon itself, under its lock, removes a dead socket."""
    greeter.close()
    with pytest.raises(DaemonNotRunning):
        connect(paths, hello, timeout_seconds=1)
    assert Path(paths.socket).is_socket()


@pytest.mark.requirement("C04")
@pytest.mark.parametrize("kind", ["file", "directory", "dangling link", "link to a file"])
def test_what_is_no_socket_is_refused_by_its_path_and_left_alone(
    paths: Paths, hello: Hello, tmp_path: Path, kind: str
) -> None:
    """C04: it may be something that a person needs."""
    place = Path(paths.socket)
    if kind == "file":
        place.write_text("mine")
    elif kind == "directory":
        place.mkdir()
    else:
        place.symlink_to(tmp_path / ("nowhere" if kind == "dangling link" else "file"))
        (tmp_path / "file").write_text("mine")
    before = place.lstat()
    with pytest.raises(DaemonUnavailable, match=f"{place} is not a socket") as caught:
        connect(paths, hello, timeout_seconds=1)
    assert not isinstance(caught.value, DaemonNotRunning | DaemonNotReady)
    assert place.lstat() == before


@pytest.mark.requirement("P5")
def test_a_daemon_of_another_user_is_not_spoken_to(
    paths: Paths, hello: Hello, greeter: Greeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5: whoever put a socket there would otherwise be handed everything that is saved."""
    somebody_else = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: somebody_else)
    with pytest.raises(DaemonUnavailable, match="another user") as caught:
        connect(paths, hello, timeout_seconds=1)
    assert not isinstance(caught.value, DaemonNotRunning | DaemonNotReady)
    assert greeter.hellos == []


def test_a_daemon_that_stays_silent_is_named_by_its_pid(paths: Paths, hello: Hello, greeter: Greeter) -> None:
    """Somebody must be able to look at, or kill, the process that hangs."""
    del greeter  # it listens, and the kernel accepts for it
    with pytest.raises(DaemonNotReady, match=f"pid {os.getpid()}"):
        connect(paths, hello, timeout_seconds=0.1)


@pytest.mark.parametrize(
    "answer",
    [None, b"HTTP/1.1 200 OK\r\n\r\n", b"\x00\x00\x00\x01\xc1", Goodbye(STOPPING, "Leaving.")],
    ids=["hangs up", "http", "no message", "leaving"],
)
def test_a_daemon_that_leaves_or_talks_nonsense_is_worth_another_try(
    paths: Paths, hello: Hello, greeter: Greeter, answer: Goodbye | bytes | None
) -> None:
    """P7: it may be ending this very moment; the next one will be another."""
    greeter.answer = answer
    with pytest.raises(DaemonNotReady):
        connect(paths, hello, timeout_seconds=10, on_wait=greeter.on_wait)


@pytest.mark.parametrize(
    "answer",
    [Goodbye(SKEW, "Sides: 2.0, 1.0."), Welcome(99, [], "9.0", "instance", 1, {})],
    ids=["said by the daemon", "seen by the client"],
)
def test_version_skew_says_what_to_do(
    paths: Paths, hello: Hello, greeter: Greeter, answer: Goodbye | Welcome
) -> None:
    """Trying again would change nothing, so the remedy is part of the error."""
    greeter.answer = answer
    with pytest.raises(VersionSkew, match=r"Sides: 2\.0, 1\.0\.|9\.0.*mcpstated restart") as caught:
        connect(paths, hello, timeout_seconds=10, on_wait=greeter.on_wait)
    assert "mcpstated restart" in str(caught.value.details["hint"])


def test_a_refusal_is_final_and_keeps_its_words(paths: Paths, hello: Hello, greeter: Greeter) -> None:
    """P6: a daemon that is full says so, and the caller is told in the same words."""
    greeter.answer = Goodbye(REFUSED, "The daemon already serves 1024 sessions.")
    with pytest.raises(DaemonUnavailable, match="1024 sessions") as caught:
        connect(paths, hello, timeout_seconds=10, on_wait=greeter.on_wait)
    assert not isinstance(caught.value, DaemonNotRunning | DaemonNotReady)


def test_a_socket_path_that_is_too_long_is_named(tmp_path: Path, hello: Hello) -> None:
    """A limit of the system becomes one clear error."""
    path = str(tmp_path / ("x" * 200))
    with pytest.raises(DaemonUnavailable, match="xxx cannot be connected to"):
        connect(Paths(str(tmp_path), path), hello, timeout_seconds=1)


@pytest.mark.usefixtures("no_leaks")
def test_whoever_waits_can_end_the_wait(paths: Paths, hello: Hello, greeter: Greeter) -> None:
    """A shim whose client is gone has no reason to go on."""
    del greeter

    def give_up() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        connect(paths, hello, timeout_seconds=10, on_wait=give_up)


def test_the_hello_takes_names_from_the_environment() -> None:
    """Empty means that the daemon decides; mcpstate's names count where ours are not set."""
    assert (make_hello("cli", environ={}).user, make_hello("cli", environ={}).writer) == ("", "")
    old = {"MCPSTATE_USER": "bob", "MCPSTATE_WRITER": "w"}
    hello = make_hello("cli", environ={**old, "MCPSTATED_USER": "ann", "MCPSTATED_WRITER": ""})
    assert (hello.user, hello.writer, hello.pid) == ("ann", "w", os.getpid())


def test_a_writer_may_be_any_bytes_but_a_user_must_be_text() -> None:
    """A label is for people; a user's name decides whose state it is, so nothing is guessed."""
    bytes_as_python_has_them = b"\xff".decode("utf-8", "surrogateescape")
    hello = make_hello("cli", environ={"MCPSTATED_WRITER": bytes_as_python_has_them})
    assert hello.writer == "\ufffd"
    with pytest.raises(InvalidInput, match="UTF-8"):
        make_hello("cli", environ={"MCPSTATED_USER": bytes_as_python_has_them})


def test_a_long_hello_is_sent_whole(paths: Paths, greeter: Greeter) -> None:
    """The daemon refuses a name that is too long in words; it must first receive it."""
    hello = make_hello("library", environ={"MCPSTATED_WRITER": "w" * 5_000})
    link = connect(paths, hello, timeout_seconds=10, on_wait=greeter.on_wait)
    link.sock.close()
    assert greeter.hellos == [hello]


@pytest.mark.requirement("C04")
def test_a_full_backlog_is_a_busy_daemon_not_a_dead_one(data_dir: Path, hello: Hello) -> None:
    """C04: a daemon under a crowd must not be taken for gone."""
    paths = Paths(str(data_dir))
    waiting: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(paths.socket)
        listening.listen(0)
        while not waiting or waiting[-1].connect_ex(paths.socket) == 0:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
        with pytest.raises(DaemonNotReady, match="more connections"):
            connect(paths, hello, timeout_seconds=1)
        for client in waiting:
            client.close()
