"""What becomes of a program's requests when the daemon ends: daemons played by hand, one by one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from mcpstated.connection import DaemonClient
from mcpstated.launch import DaemonNotReady, DaemonNotRunning, VersionSkew
from mcpstated.protocol.connection import Connection
from mcpstated.protocol.errors import DaemonUnavailable, McpStateError, OutcomeUnknown
from mcpstated.protocol.messages import (
    STOPPING,
    UPGRADING,
    Failure,
    Goodbye,
    Hello,
    Message,
    Request,
    Response,
    Welcome,
)
from mcpstated.protocol.patches import Append
from mcpstated.requests import GIVE_UP_SECONDS, Wire

PAGE: dict[str, object] = {"handles": [], "total": 0, "next_cursor": None}
CLIENT_ID = b"c" * 16


def receipt(version: int) -> dict[str, object]:
    """Return what a daemon answers to a write."""
    info = {
        "handle": "a_1",
        "kind": "a",
        "title": None,
        "version": version,
        "revision": version,
        "created_at": 1.0,
        "updated_at": 2.0,
        "expires_at": None,
        "last_writer": "w",
        "size_bytes": 2,
        "outline": "",
    }
    return {"info": info, "is_changed": True, "is_deleted": False, "touched": [], "trash_until": None}


class Daemon:
    """One run of a daemon, seen over its one connection."""

    def __init__(self, protocol: int, store: str = "store=a.5") -> None:
        ours, self.stream = trio.testing.memory_stream_pair()
        self.connection = Connection("daemon")
        client_end = Connection("client")
        hello = Hello(1, protocol, [], "library", "9", CLIENT_ID, "", "", os.getpid())
        self.connection.receive_data(client_end.send(hello))
        self.connection.next_event()
        welcome = Welcome(protocol, [store], "8", "instance", 4711, {})
        client_end.receive_data(self.connection.send(welcome))
        client_end.next_event()
        self.wire = Wire(ours, client_end, welcome)

    async def request(self) -> Request:
        while (message := self.connection.next_event()) is None:
            data = await self.stream.receive_some()
            assert data, "the client closed the connection"
            self.connection.receive_data(bytes(data))
        assert isinstance(message, Request), message
        return message

    async def send(self, *messages: Message) -> None:
        await self.stream.send_all(b"".join(self.connection.send(message) for message in messages))

    async def die(self) -> None:
        await self.stream.aclose()


class Daemons:
    """The daemons that a client finds, one after the other."""

    def __init__(self) -> None:
        self._put, self._take = trio.open_memory_channel[Daemon | McpStateError](100)
        self.searches = 0

    def next(self, found: Daemon | McpStateError) -> None:
        """Let the next search find this."""
        self._put.send_nowait(found)

    def start(self, protocol: int = 2, store: str = "store=a.5") -> Daemon:
        daemon = Daemon(protocol, store)
        self.next(daemon)
        return daemon

    async def find(self, timeout_seconds: float) -> Wire:
        self.searches += 1
        assert timeout_seconds > 0
        found = await self._take.receive()
        if isinstance(found, McpStateError):
            raise found
        return found.wire


@asynccontextmanager
async def client_of(
    first: Daemon, daemons: Daemons, *, waits_for_start: bool = True
) -> AsyncIterator[tuple[DaemonClient, trio.Nursery]]:
    """Give a client that is connected to its first daemon."""
    client = DaemonClient(first.wire, find=daemons.find, waits_for_start=waits_for_start)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            yield client, nursery
            nursery.cancel_scope.cancel()


class Call:
    """One call of a client, under way."""

    def __init__(self, nursery: trio.Nursery, method: Any, *arguments: Any, **more: Any) -> None:
        self.result: Any = None
        self.error: McpStateError | None = None
        self.ended = trio.Event()
        nursery.start_soon(self._run, method, arguments, more)

    async def _run(self, method: Any, arguments: Any, more: Any) -> None:
        try:
            self.result = await method(*arguments, **more)
        except McpStateError as error:
            self.error = error
        self.ended.set()

    async def value(self) -> Any:
        await self.ended.wait()
        assert self.error is None, self.error
        return self.result

    async def failure(self) -> McpStateError:
        await self.ended.wait()
        assert self.error is not None, self.result
        return self.error


@pytest.mark.requirement("P2")
async def test_what_was_not_answered_is_sent_to_the_next_daemon_under_its_number() -> None:
    """P2: the daemon tells by the number that it has applied a write, and answers as it did."""
    daemons, first = Daemons(), Daemon(2)
    async with client_of(first, daemons) as (client, nursery):
        patch = Call(nursery, client.patch, "a_1", [Append("l", 1)])
        asked = await first.request()
        assert (asked.id, asked.is_resent, asked.floor) == (1, False, 1)
        listing = Call(nursery, client.list)
        asked = await first.request()
        assert (asked.operation, asked.id, asked.is_resent, asked.floor) == ("list", 2, False, 1)
        second = daemons.start()
        await first.die()
        again = [await second.request(), await second.request()]
        assert [(item.operation, item.id, item.is_resent, item.floor) for item in again] == [
            ("patch", 1, True, 1),
            ("list", 2, True, 1),
        ]
        assert again[0].parameters == {"handle": "a_1", "ops": '[{"op":"append","path":"l","value":1}]'}
        await second.send(Response(2, PAGE), Response(1, receipt(7)))
        assert (await patch.value()).info.version == 7
        assert (await listing.value()).total == 0
        third = Call(nursery, client.delete, "a_1")
        asked = await second.request()
        assert (asked.id, asked.is_resent, asked.floor) == (3, False, 3)
        await second.send(Response(3, receipt(8)))
        await third.value()


@pytest.mark.requirement("P2")
async def test_nothing_below_the_floor_ever_comes_again() -> None:
    """P2: the daemon forgets what is below it, so a resent request there would be applied twice."""
    daemons, daemon = Daemons(), Daemon(2)
    floor = 0
    async with client_of(daemon, daemons) as (client, nursery):
        calls = {}
        for number in range(1, 31):
            calls[number] = Call(nursery, client.delete, f"a_{number}")
            asked = await daemon.request()
            floor = max(floor, asked.floor)
            assert asked.floor <= min(n for n, call in calls.items() if not call.ended.is_set())
            if number % 5 == 0:
                oldest = min(n for n, call in calls.items() if not call.ended.is_set())
                for answered in {oldest, number - 3}:
                    await daemon.send(Response(answered, receipt(1)))
                    await calls[answered].ended.wait()
            if number % 7 == 0:
                following = daemons.start()
                await daemon.die()
                daemon = following
                waiting = [n for n, call in calls.items() if not call.ended.is_set()]
                again = [await daemon.request() for _ in waiting]
                assert [item.id for item in again] == waiting
                assert all(item.is_resent and item.id >= max(floor, item.floor) for item in again)
        assert floor > 1


@pytest.mark.requirement("C18", "P2")
@pytest.mark.parametrize("store", ["store=b.9", "store=a.4"])
async def test_a_write_that_one_store_may_have_is_not_sent_to_another(store: str) -> None:
    """C18: its ledger never saw the call; what only reads, or was not sent, goes on."""
    daemons, first = Daemons(), Daemon(2)
    async with client_of(first, daemons) as (client, nursery):
        patch = Call(nursery, client.patch, "a_1", [Append("l", 1)])
        await first.request()
        listing = Call(nursery, client.list)
        await first.request()
        second = daemons.start(store=store)
        await first.die()
        again = await second.request()
        assert (again.operation, again.is_resent) == ("list", True)
        await second.send(Response(again.id, PAGE))
        assert (await listing.value()).total == 0
        failure = await patch.failure()
        assert isinstance(failure, OutcomeUnknown)
        assert "replaced" in failure.message


async def test_a_failure_that_cannot_be_understood_fails_one_call_only() -> None:
    """A daemon of another version may say what this one does not know."""
    daemons, first = Daemons(), Daemon(2)
    async with client_of(first, daemons) as (client, nursery):
        patch = Call(nursery, client.patch, "a_1", [Append("l", 1)])
        await first.request()
        listing = Call(nursery, client.list)
        await first.request()
        await first.send(Failure(1, {"code": "stale_write", "current": "{"}), Response(2, PAGE))
        assert isinstance(await patch.failure(), VersionSkew)
        assert (await listing.value()).total == 0


async def test_a_call_that_comes_between_two_daemons_waits_for_the_next() -> None:
    """A restart is no reason for an error; and a call that no daemon has seen is not marked as resent."""
    daemons, first = Daemons(), Daemon(2)
    async with client_of(first, daemons) as (client, nursery):
        await first.send(Goodbye(UPGRADING, "Bye."))
        await trio.testing.wait_all_tasks_blocked()
        assert daemons.searches == 0, "nobody needs a daemon yet"
        call = Call(nursery, client.delete, "a_1")
        await trio.testing.wait_all_tasks_blocked()
        assert daemons.searches == 1
        second = daemons.start()
        asked = await second.request()
        assert not asked.is_resent
        await second.send(Response(asked.id, receipt(2)))
        assert (await call.value()).info.version == 2
        assert client.welcome is second.wire.welcome


@pytest.mark.requirement("P2")
@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (2, 1)])
async def test_a_daemon_that_cannot_recognise_a_write_is_not_sent_it_again(before: int, after: int) -> None:
    """P2: version 1 has no numbers to go by, so the outcome is unknown; reads are simply repeated."""
    daemons, first = Daemons(), Daemon(before)
    async with client_of(first, daemons) as (client, nursery):
        patch = Call(nursery, client.patch, "a_1", [Append("l", 1)])
        await first.request()
        listing = Call(nursery, client.list)
        await first.request()
        second = daemons.start(after)
        await first.die()
        asked = await second.request()
        assert asked.operation == "list"
        await second.send(Response(asked.id, PAGE))
        await listing.value()
        error = await patch.failure()
        assert isinstance(error, OutcomeUnknown)
        assert error.details["handle"] == "a_1"


@pytest.mark.parametrize("is_sent", [False, True])
async def test_a_daemon_is_stopped_once_and_no_other_in_its_place(is_sent: bool) -> None:
    """Sent again, `stop` would end the daemon that somebody has just started."""
    daemons, first = Daemons(), Daemon(2)
    async with client_of(first, daemons) as (client, nursery):
        if is_sent:
            stop = Call(nursery, client.stop, "stopping")
            await first.request()
            await first.send(Goodbye(STOPPING, "Bye."))
        else:
            await first.send(Goodbye(STOPPING, "Bye."))
            await trio.testing.wait_all_tasks_blocked()
            stop = Call(nursery, client.stop, "stopping")
        assert isinstance(await stop.failure(), DaemonUnavailable)
        await trio.testing.wait_all_tasks_blocked()
        assert daemons.searches == 0


async def test_emptying_the_trash_is_not_repeated() -> None:
    """It is not in the ledger; a second time it would answer that there was nothing."""
    daemons, first = Daemons(), Daemon(2)
    async with client_of(first, daemons) as (client, nursery):
        call = Call(nursery, client.empty_trash, "a_1")
        await first.request()
        await first.die()
        assert isinstance(await call.failure(), OutcomeUnknown)


@pytest.mark.requirement("P2", "P6")
async def test_without_a_daemon_everybody_is_told_in_time_and_the_next_call_looks_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """P6: ten seconds from the loss on; P2: a write that was sent is called unknown. Then all is anew."""
    daemons, first = Daemons(), Daemon(2)
    async with client_of(first, daemons) as (client, nursery):
        patch = Call(nursery, client.patch, "a_1", [Append("l", 1)])
        await first.request()
        listing = Call(nursery, client.list)
        await first.request()
        started = trio.current_time()
        await first.die()
        await trio.testing.wait_all_tasks_blocked()
        late = Call(nursery, client.delete, "a_2")
        for number in range(30):
            daemons.next(
                DaemonNotReady("It is busy.") if number % 2 else DaemonNotRunning("It is not there.")
            )
        assert isinstance(await patch.failure(), OutcomeUnknown)
        for call in (listing, late):
            error = await call.failure()
            assert isinstance(error, DaemonUnavailable)
            assert not isinstance(error, OutcomeUnknown)
        assert trio.current_time() - started == pytest.approx(GIVE_UP_SECONDS)
        while daemons._take.statistics().current_buffer_used:
            daemons._take.receive_nowait()
        again = Call(nursery, client.delete, "a_3")
        second = daemons.start()
        asked = await second.request()
        assert asked.parameters == {"handle": "a_3"}
        assert not asked.is_resent
        await second.send(Response(asked.id, receipt(2)))
        await again.value()


async def test_where_no_daemon_may_be_started_its_absence_is_said_at_once() -> None:
    """Commands that only look do not wait for what nobody starts."""
    daemons, first = Daemons(), Daemon(2)
    async with client_of(first, daemons, waits_for_start=False) as (client, nursery):
        call = Call(nursery, client.status)
        await first.request()
        daemons.next(DaemonNotRunning("The daemon is not running."))
        await first.die()
        assert isinstance(await call.failure(), DaemonNotRunning)
        assert daemons.searches == 1


async def test_what_a_daemon_says_against_starting_is_told_at_once() -> None:
    """A damaged store does not get better by waiting."""
    daemons, first = Daemons(), Daemon(2)
    async with client_of(first, daemons) as (client, nursery):
        call = Call(nursery, client.list)
        await first.request()
        daemons.next(DaemonUnavailable("The daemon could not start: it is damaged."))
        await first.die()
        assert "damaged" in (await call.failure()).message


async def test_a_cancelled_call_is_not_sent_again() -> None:
    """Nobody waits for it, and its number may be below the floor by then."""
    daemons, first = Daemons(), Daemon(2)
    async with client_of(first, daemons) as (client, nursery):
        with trio.move_on_after(60) as scope:

            async def give_up() -> None:
                await first.request()
                scope.cancel()

            nursery.start_soon(give_up)
            await client.delete("a_1")
        assert scope.cancelled_caught
        listing = Call(nursery, client.list)
        await trio.testing.wait_all_tasks_blocked()
        second = daemons.start()
        await first.die()
        asked = await second.request()
        assert (asked.operation, asked.floor) == ("list", asked.id)
        await second.send(Response(asked.id, PAGE))
        await listing.value()


async def test_a_watch_ends_with_its_connection_and_can_be_begun_anew() -> None:
    """What changed meanwhile was not seen, and the watcher must know."""
    daemons, first = Daemons(), Daemon(2)
    async with client_of(first, daemons) as (client, nursery):

        async def answer(daemon: Daemon) -> None:
            await daemon.send(Response((await daemon.request()).id, {"watching": True}))

        nursery.start_soon(answer, first)
        async with client.watch() as watch:
            await first.die()
            with pytest.raises(DaemonUnavailable):
                await anext(watch)
        second = daemons.start()
        nursery.start_soon(answer, second)
        async with client.watch():
            pass


async def test_a_daemon_that_dies_again_and_again_is_not_called_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """P6: a call that every daemon dies of ends in an error in time; the pauses grow."""
    daemons, daemon = Daemons(), Daemon(2)
    deaths = 0
    async with client_of(daemon, daemons) as (client, nursery):
        call = Call(nursery, client.patch, "a_1", [Append("l", 1)])

        async def die_of_it() -> None:
            nonlocal daemon, deaths
            while True:
                await daemon.request()
                following = daemons.start()
                await daemon.die()
                daemon, deaths = following, deaths + 1

        nursery.start_soon(die_of_it)
        assert isinstance(await call.failure(), OutcomeUnknown)
        assert 5 < deaths < 40
