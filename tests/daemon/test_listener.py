"""Ring 3: the Unix socket."""

from __future__ import annotations

import os
import resource
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from mcpstated.daemon.listener import Listener
from mcpstated.protocol.errors import DaemonUnavailable
from mcpstated.protocol.peers import Peer


@pytest.fixture(name="place")
def _place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mst-") as directory:
        yield Path(directory)


async def greet(accepted: trio.socket.SocketType, peer: Peer) -> None:
    await accepted.send(f"{peer.uid}".encode())


async def ask(path: Path) -> bytes:
    with trio.socket.socket(socket.AF_UNIX) as client:
        await client.connect(str(path))
        return await client.recv(100)


async def test_a_connection_is_served_with_its_peer(place: Path) -> None:
    """P5: who somebody is comes from the kernel."""
    listener = Listener(str(place / "s"), greet)
    listener.bind()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.serve)
            assert await ask(place / "s") == str(os.getuid()).encode()
            listener.close()


@pytest.mark.requirement("C04")
@pytest.mark.parametrize("kind", ["file", "directory", "link"])
async def test_what_is_no_socket_is_refused_by_path_and_left_alone(place: Path, kind: str) -> None:
    """Whatever lies there may be somebody's work."""
    path = place / "s"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(place / "nowhere")

    with pytest.raises(DaemonUnavailable, match=str(path)):
        Listener(str(path), greet).bind()

    assert os.path.lexists(path)


@pytest.mark.requirement("C04")
async def test_a_dead_socket_is_replaced_and_a_live_one_is_not(place: Path) -> None:
    """kill -9 leaves a dead socket behind; a live one means that somebody serves."""
    path = str(place / "s")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    listener = Listener(path, greet)

    listener.bind()

    assert listener.is_in_place
    with pytest.raises(DaemonUnavailable, match="already listens"):
        Listener(path, greet).bind()
    assert listener.is_in_place
    listener.close()


async def test_a_socket_that_was_removed_is_bound_again_and_served(place: Path) -> None:
    """Cleaners of temporary directories remove sockets; clients must find the daemon again."""
    path = place / "s"
    listener = Listener(str(path), greet)
    listener.bind()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.serve)
            path.unlink()
            assert not listener.is_in_place

            listener.bind()

            assert await ask(path) == str(os.getuid()).encode()
            listener.close()


@pytest.mark.requirement("P7")
async def test_a_fault_in_one_connection_costs_no_other(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler's faults end its own connection."""
    calls = 0

    async def fail_first(accepted: trio.socket.SocketType, peer: Peer) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("boom")
        await greet(accepted, peer)

    listener = Listener(str(place / "s"), fail_first)
    listener.bind()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.serve)
            assert await ask(place / "s") == b""
            assert await ask(place / "s") != b""
            listener.close()

    assert "session failed" in caplog.text
    assert listener.connections == 0


@pytest.mark.requirement("C20", "P6")
async def test_without_descriptors_it_backs_off_says_so_once_and_goes_on(
    place: Path, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    """The system's limit may be reached whatever we count: others use descriptors too."""
    listener = Listener(str(place / "s"), greet)
    listener.bind()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with trio.fail_after(20), ExitStack() as stack:
        waiting = [stack.enter_context(trio.socket.socket(socket.AF_UNIX)) for _ in range(20)]
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.serve)
            lowest_free = os.dup(0)
            os.close(lowest_free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            try:
                for client in waiting:
                    await client.connect(str(place / "s"))
                await trio.sleep(10)  # some hundred attempts, on a clock that jumps
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert [await client.recv(100) for client in waiting] == [str(os.getuid()).encode()] * 20
            listener.close()

    assert caplog.text.count("connections cannot be accepted") == 1


@pytest.mark.requirement("C20", "P7")
async def test_who_is_not_admitted_is_closed_unheard_and_named_once(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever connects in a loop is told nothing, and does not fill the log."""
    listener = Listener(str(place / "s"), greet, admit=lambda peer: peer.pid != os.getpid())
    listener.bind()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.serve)
            assert [await ask(place / "s") for _ in range(5)] == [b""] * 5
            listener.close()

    assert caplog.text.count("connections of a process refused") == 1


@pytest.mark.requirement("P5")
async def test_the_socket_is_private_from_its_first_moment(place: Path) -> None:
    """0600 by umask, not by a later chmod."""
    listener = Listener(str(place / "s"), greet)
    listener.bind()

    assert (place / "s").stat().st_mode & 0o777 == 0o600
    listener.close()


async def test_a_backlog_is_served_after_the_path_is_gone(place: Path) -> None:
    """The idle exit looks at the backlog once more after unlinking: nobody may fall between."""
    listener = Listener(str(place / "s"), greet)
    listener.bind()
    with trio.fail_after(5), socket.socket(socket.AF_UNIX) as early:
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.serve)
            listener._accepting.cancel()  # the accept loop must not win the race
            await trio.testing.wait_all_tasks_blocked()
            listener._nursery = nursery
            assert not listener.accept_waiting()
            early.connect(str(place / "s"))
            listener.unlink()

            assert listener.accept_waiting()

            assert not (place / "s").exists()
            listener.close()
