"""The typed connection against a daemon that a test plays by hand, over memory streams."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from mcpstated.connection import DaemonClient
from mcpstated.launch import VersionSkew
from mcpstated.protocol.connection import Connection
from mcpstated.protocol.errors import (
    DaemonUnavailable,
    HandleNotFound,
    InternalError,
    InvalidInput,
    OutcomeUnknown,
    StaleWrite,
)
from mcpstated.protocol.messages import (
    SLOW,
    STOPPING,
    Cancel,
    Event,
    Failure,
    Goodbye,
    Hello,
    Message,
    Request,
    Response,
    Welcome,
)
from mcpstated.protocol.patches import Append
from mcpstated.requests import Wire
from mcpstated.watch import WATCH_BUFFER, WatchLagged

INFO: dict[str, object] = {
    "handle": "research_k3v9x2mq",
    "kind": "research",
    "title": None,
    "version": 3,
    "revision": 17,
    "created_at": 1.0,
    "updated_at": 2.0,
    "expires_at": None,
    "last_writer": "laptop/cursor",
    "size_bytes": 2,
    "outline": "",
}
EMPTY_PAGE: dict[str, object] = {"handles": [], "total": 0, "next_cursor": None}
RECEIPT: dict[str, object] = {
    "info": INFO,
    "is_changed": True,
    "is_deleted": False,
    "touched": [["append", "sources", 4]],
}


class FakeDaemon:
    """The other end, as the test wants it to be."""

    def __init__(self, stream: trio.testing.MemoryReceiveStream, connection: Connection) -> None:
        self.stream: Any = stream
        self.connection = connection

    async def receive(self) -> Message:
        with trio.fail_after(5):
            while (message := self.connection.next_event()) is None:
                data = await self.stream.receive_some()
                assert data, "the client closed the connection"
                self.connection.receive_data(bytes(data))
        return message

    async def request(self) -> Request:
        message = await self.receive()
        assert isinstance(message, Request), message
        return message

    async def send(self, *messages: Message) -> None:
        """Send all messages in one piece."""
        await self.stream.send_all(b"".join(self.connection.send(message) for message in messages))


@asynccontextmanager
async def conversation() -> AsyncIterator[tuple[DaemonClient, FakeDaemon]]:
    """Give a client that has been welcomed, and the daemon at its other end."""
    ours, theirs = trio.testing.memory_stream_pair()
    client_end, daemon_end = Connection("client"), Connection("daemon")
    daemon_end.receive_data(client_end.send(Hello(1, 1, [], "cli", "9", b"", "", "", os.getpid())))
    daemon_end.next_event()
    welcome = Welcome(1, [], "8", "instance", 4711, {})
    client_end.receive_data(daemon_end.send(welcome))
    client_end.next_event()
    client = DaemonClient(Wire(ours, client_end, welcome))
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        yield client, FakeDaemon(theirs, daemon_end)
        nursery.cancel_scope.cancel()


def wire_of(client: DaemonClient) -> Wire:
    """Return the connection that a client uses now."""
    wire = client._requests._wire
    assert wire is not None
    return wire


async def test_answers_find_their_callers_in_any_order() -> None:
    """Calls of one client run side by side, and the daemon answers as it gets done."""
    got: dict[str, object] = {}

    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def load(handle: str) -> None:
            got[handle] = (await client.load(handle)).state

        nursery.start_soon(load, "a_1")
        first = await daemon.request()
        nursery.start_soon(load, "b_2")
        second = await daemon.request()
        for asked in (second, first):
            text = f'"{asked.parameters["handle"]}"'
            await daemon.send(Response(asked.id, {**INFO, "state": text}))

    assert got == {"a_1": "a_1", "b_2": "b_2"}


async def test_numbers_of_a_state_arrive_exactly() -> None:
    """Documents travel as JSON text, so that no integer passes through a float or 64 bits."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def answer() -> None:
            asked = await daemon.request()
            assert asked.parameters == {"handle": "a_1", "path": "n", "version": 2}
            await daemon.send(Response(asked.id, {**INFO, "state": "[12345678901234567890123, 1.0, -0.0]"}))

        nursery.start_soon(answer)
        loaded = await client.load("a_1", path="n", version=2)

    assert repr(loaded.state) == "[12345678901234567890123, 1.0, -0.0]"
    assert loaded.info.last_writer == "laptop/cursor"


async def test_a_failure_is_raised_as_the_error_that_it_was() -> None:
    """What the engine raised is what the caller catches, with the fields that repair the call."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def answer() -> None:
            asked = await daemon.request()
            error = StaleWrite("Somebody else saved first.", handle="a_1", current={"version": 7})
            await daemon.send(Failure(asked.id, error.to_payload()))
            asked = await daemon.request()
            await daemon.send(Failure(asked.id, {"code": "from_the_future", "message": "New."}))

        nursery.start_soon(answer)
        with pytest.raises(StaleWrite, match="Somebody else") as caught:
            await client.save("a_1", {}, expect_version=3)
        assert caught.value.details["current"] == {"version": 7}
        with pytest.raises(InternalError, match="New"):
            await client.delete("a_1")


async def test_a_write_says_what_it_keeps_and_what_it_clears() -> None:
    """An absent parameter keeps a property, None clears it; a default must not overwrite either."""
    seen = []
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def answer() -> None:
            for _ in range(5):
                asked = await daemon.request()
                seen.append((asked.operation, asked.parameters))
                await daemon.send(Response(asked.id, RECEIPT))

        nursery.start_soon(answer)
        await client.mint("research", {"a": 1})
        await client.save("a_1", {"a": 1}, expect_version=3)
        await client.save("a_1", {}, expect_version=3, ttl_days=None, title="T")
        receipt = await client.patch("a_1", [Append("sources", 1)])
        await client.touch("a_1", ttl_days=None)

    assert seen == [
        ("mint", {"kind": "research", "state": '{"a":1}'}),
        ("save", {"handle": "a_1", "state": '{"a":1}', "expect_version": 3}),
        ("save", {"handle": "a_1", "state": "{}", "expect_version": 3, "ttl_days": None, "title": "T"}),
        ("patch", {"handle": "a_1", "ops": '[{"op":"append","path":"sources","value":1}]'}),
        ("touch", {"handle": "a_1", "ttl_days": None}),
    ]
    assert receipt.touched[0].length == 4


async def test_a_cancelled_call_is_called_off_and_its_late_answer_ignored() -> None:
    """Whoever gives up waiting costs the daemon nothing more, and nobody gets an answer that is not his."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def give_up() -> None:
            with scope:
                await client.list()

        nursery.start_soon(give_up)
        asked = await daemon.request()
        scope.cancel()
        assert await daemon.receive() == Cancel(asked.id)
        await daemon.send(Response(asked.id, EMPTY_PAGE))

        async def answer() -> None:
            again = await daemon.request()
            await daemon.send(Response(again.id, {**EMPTY_PAGE, "total": 5}))

        nursery.start_soon(answer)
        assert (await client.list()).total == 5


async def test_a_caller_cancelled_while_its_frame_is_written_breaks_no_frame() -> None:
    """Half a frame on the wire would end the connection for everybody who shares it."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:
        is_writing, may_write = trio.Event(), trio.Event()
        pipe = wire_of(client).stream.send_stream  # type: ignore[attr-defined]
        pass_on = pipe.send_all_hook

        async def hold() -> None:
            is_writing.set()
            await may_write.wait()
            await pass_on()

        pipe.send_all_hook = hold
        scope = trio.CancelScope()

        async def give_up() -> None:
            with scope:
                await client.delete("a_1")

        nursery.start_soon(give_up)
        with trio.fail_after(5):
            await is_writing.wait()
        scope.cancel()
        may_write.set()
        asked = await daemon.request()
        assert asked.operation == "delete"
        assert await daemon.receive() == Cancel(asked.id)


@pytest.mark.requirement("P2")
async def test_a_write_without_an_answer_is_called_unknown() -> None:
    """It may have been applied before the daemon went; saying `failed` would invite doing it twice."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def vanish() -> None:
            await daemon.request()
            await daemon.stream.aclose()

        nursery.start_soon(vanish)
        with pytest.raises(OutcomeUnknown, match="may have been applied or not") as caught:
            await client.patch("a_1", [Append("sources", 1)])
        assert caught.value.details["handle"] == "a_1"


async def test_a_read_without_an_answer_says_that_the_daemon_is_gone() -> None:
    """A read can simply be done again, and the error says what the daemon said last."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def part() -> None:
            await daemon.request()
            await daemon.send(Goodbye(STOPPING, "The daemon was asked to stop."))

        nursery.start_soon(part)
        with pytest.raises(DaemonUnavailable, match="was asked to stop"):
            await client.status()
        with pytest.raises(DaemonUnavailable, match="was asked to stop"):
            await client.delete("a_1")  # not sent, so nothing about it is unknown


async def test_answers_before_a_goodbye_are_delivered() -> None:
    """`stop` is answered, and then the daemon goes."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def answer() -> None:
            asked = await daemon.request()
            assert asked.parameters == {"reason": "upgrading"}
            await daemon.send(Response(asked.id, {"pid": 4711}), Goodbye(STOPPING, "Bye."))

        nursery.start_soon(answer)
        assert await client.stop("upgrading") == 4711


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda client: client.status(), {"daemon": {}}),
        (lambda client: client.status(), {"daemon": 1, "store": {}, "sessions": []}),
        (lambda client: client.list(), {"total": 0}),
        (lambda client: client.list(), {**EMPTY_PAGE, "handles": [1]}),
        (lambda client: client.load("a_1"), {**INFO, "state": 1}),
        (lambda client: client.delete("a_1"), {"info": INFO}),
        (lambda client: client.delete("a_1"), {**RECEIPT, "touched": ["x"]}),
        (lambda client: client.stop("stopping"), {"pid": "4711"}),
    ],
)
async def test_an_answer_of_another_shape_is_a_version_skew(
    call: Callable[[DaemonClient], Any], answer: dict[str, object]
) -> None:
    """The sentence names the other side's version and the command that makes both the same."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def reply() -> None:
            await daemon.send(Response((await daemon.request()).id, answer))

        nursery.start_soon(reply)
        with pytest.raises(VersionSkew, match="version 8") as caught:
            await call(client)
        assert caught.value.details["hint"] == "Run: mcpstated restart"


async def test_fields_that_this_build_does_not_know_are_left_out() -> None:
    """A newer daemon may say more; that alone must not break an older command."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def reply() -> None:
            page = {**EMPTY_PAGE, "handles": [{**INFO, "colour": "blue"}], "mood": "good"}
            await daemon.send(Response((await daemon.request()).id, page))

        nursery.start_soon(reply)
        assert (await client.list()).handles[0].version == 3


@pytest.mark.requirement("P6")
async def test_a_call_that_fits_no_frame_is_refused_here_and_the_connection_goes_on() -> None:
    """The daemon would have to cut the connection; so it never gets to see that frame."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:
        wire_of(client).connection.max_frame_bytes = 1000
        with pytest.raises(InvalidInput, match="1000 fit a frame"):
            await client.mint("research", {"text": "x" * 2000})
        with pytest.raises(InvalidInput, match="cannot be encoded"):
            await client.load("a_1", version=2**64)

        async def reply() -> None:
            await daemon.send(Response((await daemon.request()).id, EMPTY_PAGE))

        nursery.start_soon(reply)
        assert (await client.list()).total == 0


async def test_a_daemon_that_breaks_the_protocol_is_gone_and_the_reason_is_said() -> None:
    """Everyone who waits gets one clear error instead of waiting for ever."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def babble() -> None:
            await daemon.request()
            await daemon.stream.send_all(b"\x00\x00\x00\x01\xc0")

        nursery.start_soon(babble)
        with pytest.raises(DaemonUnavailable, match="broke the protocol"):
            await client.status()


def event(subscription: int, revision: int) -> Event:
    payload: dict[str, object] = {
        "handle": "a_1",
        "version": revision,
        "action": "patch",
        "writer": "w",
        "at": 5.0,
    }
    return Event(subscription, revision, payload)


async def test_a_watch_gives_changes_in_order_and_is_called_off_at_its_end() -> None:
    """Changes may come in the same read as the answer to the watch; none of them may be lost."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:
        watched: list[Request] = []

        async def answer() -> None:
            watched.append(await daemon.request())
            number = watched[0].id
            await daemon.send(Response(number, {"watching": True}), event(number, 1), event(number, 2))

        nursery.start_soon(answer)
        with trio.fail_after(5):
            async with client.watch() as watch:
                revisions = [(await anext(watch)).revision for _ in range(2)]
        assert revisions == [1, 2]
        assert watched[0].operation == "watch"
        assert await daemon.receive() == Cancel(watched[0].id)


async def test_a_watcher_that_is_too_slow_is_told_and_holds_nobody_up() -> None:
    """The reader of the connection serves all calls; it must not wait for one watcher."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def answer() -> None:
            number = (await daemon.request()).id
            flood = [event(number, n) for n in range(WATCH_BUFFER + 1)]
            await daemon.send(Response(number, {"watching": True}), *flood)
            await daemon.send(Response((await daemon.request()).id, EMPTY_PAGE))

        nursery.start_soon(answer)
        with trio.fail_after(5):
            async with client.watch() as watch:
                await client.list()  # served although nobody takes the changes
                got = [await anext(watch) for _ in range(WATCH_BUFFER)]
                with pytest.raises(WatchLagged):
                    await anext(watch)
        assert [change.revision for change in got] == list(range(WATCH_BUFFER))


@pytest.mark.parametrize(("reason", "error"), [(SLOW, WatchLagged), (STOPPING, DaemonUnavailable)])
async def test_a_watch_says_how_it_ended(reason: str, error: type[Exception]) -> None:
    """After a lag it can be begun again at once; after the daemon's end something else is to be done."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def answer() -> None:
            number = (await daemon.request()).id
            await daemon.send(Response(number, {"watching": True}), event(number, 1))
            await daemon.send(Goodbye(reason, "Bye."))

        nursery.start_soon(answer)
        with trio.fail_after(5):
            async with client.watch() as watch:
                assert (await anext(watch)).handle == "a_1"
                with pytest.raises(error, match="Bye"):
                    await anext(watch)


async def test_a_watch_that_is_refused_raises_what_it_was_refused_for() -> None:
    """Entering the block is the call, so the error comes from there."""
    async with conversation() as (client, daemon), trio.open_nursery() as nursery:

        async def answer() -> None:
            error = HandleNotFound("No.", handle="a_1").to_payload()
            await daemon.send(Failure((await daemon.request()).id, error))

        nursery.start_soon(answer)
        with pytest.raises(HandleNotFound):
            async with client.watch():
                pytest.fail("the watch was refused")
