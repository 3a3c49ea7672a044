"""Ring 3: what waits for a peer."""

from __future__ import annotations

import pytest
import trio

from mcpstated.daemon.outbox import Outbox, SlowReader

KIB = 1024


async def test_frames_arrive_whole_and_in_order() -> None:
    """Many small answers are joined into one write; the bytes must be the same."""
    ours, theirs = trio.socket.socketpair()
    outbox = Outbox(max_unread_bytes=64 * KIB, grace_seconds=5)
    frames = [bytes([n]) * (n + 1) for n in range(50)]
    with ours, theirs, trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.write_to, ours)
            for frame in frames:
                await outbox.put(frame)
            await outbox.drained()
            assert outbox.size_bytes == 0
            received = bytearray()
            while len(received) < sum(map(len, frames)):
                received += await theirs.recv(KIB)
            assert bytes(received) == b"".join(frames)
            nursery.cancel_scope.cancel()


@pytest.mark.requirement("P6")
async def test_an_answer_waits_for_room_and_then_goes(autojump_clock: trio.testing.MockClock) -> None:
    """A slow peer slows its own answers down; the memory held for it stays bounded."""
    outbox = Outbox(max_unread_bytes=10, grace_seconds=5)
    outbox.put_nowait(b"x" * 10)
    with trio.move_on_after(60) as waited:
        await outbox.put(b"y")

    assert waited.cancelled_caught
    assert outbox.size_bytes == 10


@pytest.mark.requirement("P7")
async def test_a_peer_that_takes_nothing_is_a_slow_reader() -> None:
    """A client that asks and never reads must not hold memory for ever."""
    ours, theirs = trio.socket.socketpair()
    outbox = Outbox(max_unread_bytes=64 * KIB, grace_seconds=0.05)
    with ours, theirs, trio.fail_after(10):
        for _ in range(16):
            outbox.put_nowait(bytes(256 * KIB))
        with pytest.raises(SlowReader):
            await outbox.write_to(ours)


async def test_a_slow_peer_with_little_to_read_is_left_in_peace() -> None:
    """Only a full box makes a standstill a fault: a client may sleep over one answer."""
    ours, theirs = trio.socket.socketpair()
    ours.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, 4 * KIB)
    outbox = Outbox(max_unread_bytes=1024 * KIB, grace_seconds=0.02)
    with ours, theirs, trio.fail_after(10):
        outbox.put_nowait(bytes(512 * KIB))
        with trio.move_on_after(0.5) as peace:
            await outbox.write_to(ours)

    assert peace.cancelled_caught


async def test_closing_lets_nobody_wait() -> None:
    """A session that ends must not strand the tasks that still answer."""
    outbox = Outbox(max_unread_bytes=1, grace_seconds=5)
    outbox.put_nowait(b"x")
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.put, b"y")
            nursery.start_soon(outbox.drained)
            nursery.start_soon(outbox.changed)
            await trio.testing.wait_all_tasks_blocked()
            outbox.close()

    assert outbox.size_bytes == 0
