"""Ring 3: what one peer sends, within its share and its time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from mcpstated.daemon.intake import FRAME_SECONDS, Intake
from mcpstated.daemon.shares import (
    BURST_BYTES,
    BYTES_PER_SECOND,
    COMPANY_SECONDS,
    TURN_BYTES,
    Share,
    Shares,
)
from mcpstated.protocol.connection import Connection
from mcpstated.protocol.messages import Cancel, Hello, Message, Request, Welcome
from mcpstated.protocol.violations import RemoteProtocolError

HELLO = Hello(1, 1, [], "library", "test", b"", "", "", 1)


class Sender:
    """The other end of an intake."""

    def __init__(self, socket: trio.socket.SocketType, share: Share) -> None:
        self.socket = socket
        self.share = share
        self.connection = Connection("client")

    async def send(self, message: Message) -> None:
        await self.socket.send(self.connection.send(message))


@asynccontextmanager
async def strangers() -> AsyncIterator[tuple[Sender, Intake]]:
    """Two ends that have not said anything."""
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        share = Shares().of(1)
        yield Sender(theirs, share), Intake(ours, Connection("daemon"), share)


@asynccontextmanager
async def greeted() -> AsyncIterator[tuple[Sender, Intake]]:
    """Two ends of which one has said hello."""
    async with strangers() as (sender, intake):
        await sender.send(HELLO)
        assert isinstance(await intake.next_message(), Hello)
        welcome = Connection("daemon")
        welcome.receive_data(Connection("client").send(HELLO))
        welcome.next_event()
        sender.connection.receive_data(welcome.send(Welcome(1, [], "", "", 1, {})))
        sender.connection.next_event()
        yield sender, intake


async def test_messages_come_in_order_and_then_the_end() -> None:
    """One task reads; what it returns is what was sent."""
    async with greeted() as (sender, intake):
        with trio.fail_after(5):
            frames = sender.connection.send(Cancel(1)) + sender.connection.send(Cancel(2))
            await sender.socket.send(frames)
            assert [await intake.next_message(), await intake.next_message()] == [Cancel(1), Cancel(2)]
            sender.socket.close()
            assert await intake.next_message() is None


@pytest.mark.requirement("P7")
async def test_silence_between_two_frames_may_last_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    """An agent thinks as long as it likes."""
    async with greeted() as (sender, intake):
        for _ in range(3):
            with trio.move_on_after(100 * FRAME_SECONDS) as silence:
                await intake.next_message()
            assert silence.cancelled_caught
        await sender.send(Cancel(1))
        assert await intake.next_message() == Cancel(1)


@pytest.mark.requirement("C20", "P7")
async def test_a_frame_that_does_not_end_in_time_breaks_the_protocol(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """C20: three bytes and silence must not hold a buffer for ever."""
    async with greeted() as (sender, intake):
        await sender.socket.send(sender.connection.send(Cancel(1))[:3])
        began = trio.current_time()
        with pytest.raises(RemoteProtocolError, match="unfinished for 60 seconds"):
            await intake.next_message()
        assert trio.current_time() - began == pytest.approx(FRAME_SECONDS)


@pytest.mark.requirement("P7")
async def test_one_byte_now_and_then_does_not_begin_the_time_of_a_frame_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A byte a second would hold a megabyte for days."""
    async with greeted() as (sender, intake):
        sent = 0

        async def trickle() -> None:
            nonlocal sent
            for byte in b"\x00\x00\x10\x00" + bytes(1000):
                await sender.socket.send(bytes([byte]))
                sent += 1
                await trio.sleep(1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle)
            with pytest.raises(RemoteProtocolError, match="unfinished"):
                await intake.next_message()
            nursery.cancel_scope.cancel()
        assert FRAME_SECONDS - 1 <= sent <= FRAME_SECONDS + 2


@pytest.mark.requirement("P7")
async def test_every_frame_has_the_whole_time(autojump_clock: trio.testing.MockClock) -> None:
    """Slow frames one after another are slow, not broken: what one used is not missing to the next."""
    async with greeted() as (sender, intake):

        async def send_slowly() -> None:
            for number in range(4):
                frame = sender.connection.send(Cancel(number))
                await sender.socket.send(frame[:2])
                await trio.sleep(FRAME_SECONDS * 0.8)
                await sender.socket.send(frame[2:] + sender.connection.send(Cancel(100))[:1])
                await trio.sleep(1)
                await sender.socket.send(sender.connection.send(Cancel(100))[1:])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_slowly)
            for number in range(4):
                assert await intake.next_message() == Cancel(number)
                assert await intake.next_message() == Cancel(100)


async def test_bytes_that_come_as_the_time_ends_are_taken(mock_clock: trio.testing.MockClock) -> None:
    """A loop that was busy sees both at once; what is left of the time must not be less than nothing."""
    async with greeted() as (sender, intake):
        await sender.socket.send(b"\x00")
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                with pytest.raises(RemoteProtocolError, match="unfinished"):
                    await intake.next_message()

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(FRAME_SECONDS + 1)
            await sender.socket.send(b"\x00")


@pytest.mark.requirement("P7")
async def test_time_in_which_the_daemon_does_not_read_is_not_the_peers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever is made to wait for others cannot end its frame meanwhile."""
    async with greeted() as (sender, intake):
        other = sender.share._shares.of(2)
        other.note_request()

        async def send_slowly() -> None:
            for byte in sender.connection.send(Cancel(1)):
                sender.share.charge(BURST_BYTES * 1_000)  # the next byte is read after 16 s
                await sender.socket.send(bytes([byte]))
                await trio.sleep(17)

        async def keep_company() -> None:
            while True:
                other.note_request()
                await trio.sleep(COMPANY_SECONDS / 2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_company)
            nursery.start_soon(send_slowly)
            began = trio.current_time()
            assert await intake.next_message() == Cancel(1)
            assert trio.current_time() - began > 2 * FRAME_SECONDS
            nursery.cancel_scope.cancel()


@pytest.mark.requirement("P7")
async def test_what_comes_is_charged_to_the_process(autojump_clock: trio.testing.MockClock) -> None:
    """Beyond its burst and in company it waits before more is read, however much there is."""
    async with greeted() as (sender, intake):
        sender.share._shares.of(2).note_request()
        sender.share.charge(BURST_BYTES)
        large = Request(1, "save", {"state": "x" * 100_000})
        began = trio.current_time()
        await sender.send(large)
        assert await intake.next_message() == large
        await sender.send(Cancel(1))
        assert await intake.next_message() == Cancel(1)
        assert trio.current_time() - began == pytest.approx(100_000 / BYTES_PER_SECOND, abs=0.01)


@pytest.mark.requirement("P7")
async def test_what_was_queued_costs_more_than_what_comes_by_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Thousands of tiny messages in one read are thousands of turns of the loop, which others wait for."""

    async def seconds(count: int, *, is_queued: bool) -> float:
        async with greeted() as (sender, intake):
            other = sender.share._shares.of(2)
            began = trio.current_time()
            frames = [sender.connection.send(Cancel(number)) for number in range(count)]
            if is_queued:
                await sender.socket.send(b"".join(frames))
            for frame in frames:
                other.note_request()
                if not is_queued:
                    await sender.socket.send(frame)
                await intake.next_message()
            return trio.current_time() - began

    count = 3 * BURST_BYTES // TURN_BYTES
    assert await seconds(count, is_queued=False) == 0
    assert await seconds(count, is_queued=True) == pytest.approx(2 * BURST_BYTES / BYTES_PER_SECOND, abs=0.1)


@pytest.mark.requirement("P7")
async def test_a_frame_in_pieces_costs_more_than_a_whole_one(autojump_clock: trio.testing.MockClock) -> None:
    """Each piece is a turn of the loop, for which all others wait, however small it is."""

    async def send_in_pieces(sender: Sender, frame: bytes) -> None:
        for place in range(len(frame)):
            await sender.socket.send(frame[place : place + 1])
            await trio.testing.wait_all_tasks_blocked()

    async with greeted() as (sender, intake):
        sender.share._shares.of(2).note_request()
        sender.share.charge(BURST_BYTES - TURN_BYTES)
        began = trio.current_time()
        await sender.send(Cancel(1))
        assert await intake.next_message() == Cancel(1)
        assert trio.current_time() == began
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_in_pieces, sender, sender.connection.send(Cancel(2)))
            assert await intake.next_message() == Cancel(2)
        assert trio.current_time() > began


async def test_a_hello_is_read_whatever_its_process_owes(autojump_clock: trio.testing.MockClock) -> None:
    """The daemon says that no hello came in time; that must not be because it did not look."""
    async with strangers() as (sender, intake):
        sender.share._shares.of(2).note_request()
        sender.share.charge(BURST_BYTES * 100)
        await sender.send(HELLO)
        began = trio.current_time()
        assert await intake.next_message() == HELLO
        assert trio.current_time() == began
