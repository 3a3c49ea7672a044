"""Ring 4: one real daemon, clients that misbehave, and one that does not and must hardly notice."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from mcpstated.daemon.shares import CONNECTION_BURST
from mcpstated.protocol.messages import Cancel, Failure, Request, Response, Welcome
from support.daemon_process import DaemonProcess, daemon_process
from support.daemons import daemon_in
from support.wire import FakeClient, client_at, connected, farewell, hello, shim_at

MIB = 1024 * 1024
LIMIT = 64
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(name="daemon", scope="module")
def _daemon() -> Iterator[DaemonProcess]:
    """One real process for the tests that look at one from outside; it may open few descriptors."""
    with tempfile.TemporaryDirectory(prefix="state-", dir="/tmp") as directory:
        with daemon_process(Path(directory), max_descriptors=LIMIT) as daemon:
            yield daemon


@asynccontextmanager
async def neighbour(path: str) -> AsyncIterator[FakeClient]:
    """A client that is there before, and is served during and after whatever the block does."""
    async with client_at(path) as client:
        handle = (await client.request("mint", kind="fair", state='{"l":[]}'))["info"]["handle"]
        await appends(client, handle)
        yield client
        await appends(client, handle)


async def until_welcomed(path: str) -> None:
    """Try to connect, as clients do that were closed unheard, until it is served again."""
    while True:
        with suppress(ConnectionResetError, BrokenPipeError):
            async with connected(path) as late:
                await late.send(hello("library"))
                if isinstance(await late.receive(), Welcome):
                    return


async def appends(client: FakeClient, handle: str) -> None:
    """Make some changes one after another."""
    for _ in range(20):
        answer = await client.request("patch", handle=handle, ops='[{"op":"append","path":"l","value":1}]')
        assert "error" not in answer, answer


@pytest.mark.requirement("P7")
async def test_shims_that_die_in_the_middle_of_a_call_leave_room_for_the_next(data_dir: Path) -> None:
    """A call counts as running for its process; more than may run at once must not stay counted."""
    call = {"name": "state_save", "arguments": {"kind": "dead", "state": {}}}
    async with daemon_in(data_dir) as daemon:
        with trio.fail_after(30):
            for _ in range(40):
                async with shim_at(daemon.socket) as shim:
                    await shim.handshake()
                    await shim.say(id=2, method="tools/call", params=call)
            async with shim_at(daemon.socket) as shim:
                await shim.handshake()
                assert (await shim.tool("state_save", kind="alive", state={}))["ok"]


@linux
@pytest.mark.once
@pytest.mark.requirement("C20", "P6", "P7")
async def test_a_client_that_asks_for_a_thousand_mebibytes_and_never_reads_costs_a_few(
    daemon: DaemonProcess,
) -> None:
    """What it does not read is not made: at most what may lie unread, and the requests under way."""
    with trio.fail_after(30):
        async with neighbour(daemon.socket), client_at(daemon.socket) as greedy:
            state = json.dumps({"x": "x" * (MIB - 100)})
            handle = (await greedy.request("mint", kind="big", state=state))["info"]["handle"]
            before = daemon.memory_bytes()
            frames = b"".join(
                greedy.connection.send(Request(100 + n, "load", {"handle": handle})) for n in range(1000)
            )
            with trio.move_on_after(1):
                while frames:
                    frames = frames[await greedy.socket.send(frames) :]
            async with client_at(daemon.socket) as other:
                await appends(
                    other, (await other.request("mint", kind="o", state='{"l":[]}'))["info"]["handle"]
                )
            assert daemon.memory_bytes("VmHWM") - before < 96 * MIB
    assert daemon.is_alive


@pytest.mark.requirement("C20", "P7")
async def test_headers_for_four_gibibytes_hold_nobody_up(data_dir: Path) -> None:
    """Four bytes are refused as four bytes, before a hello and after it, again and again."""
    async with daemon_in(data_dir) as daemon:
        with trio.fail_after(30):
            async with neighbour(daemon.socket):
                for _ in range(20):
                    async with connected(daemon.socket) as stranger, client_at(daemon.socket) as client:
                        for peer in (stranger, client):
                            await peer.socket.send(b"\xff\xff\xff\xff")
                            assert (await farewell(peer)).reason == "protocol_error"


@pytest.mark.requirement("C20", "P7")
async def test_three_bytes_and_silence_hold_nobody_up(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred wait for themselves, and are told so when their time is over."""
    async with daemon_in(data_dir) as daemon, AsyncExitStack() as stack:
        with trio.fail_after(30):
            async with neighbour(daemon.socket):
                for _ in range(200):
                    silent = await stack.enter_async_context(connected(daemon.socket))
                    await silent.socket.send(b"\x00\x00\x01")
            monkeypatch.setattr("mcpstated.daemon.session._HELLO_SECONDS", 0.1)
            async with connected(daemon.socket) as last:
                await last.socket.send(b"\x00\x00\x01")
                assert "No hello came" in (await farewell(last)).text


@pytest.mark.requirement("C20", "P7")
async def test_clients_that_die_in_the_middle_of_a_call_leave_nothing_behind(data_dir: Path) -> None:
    """Their sessions end; what they had asked for is done or not, and others find it whole."""
    async with daemon_in(data_dir) as daemon:
        with trio.fail_after(30):
            async with neighbour(daemon.socket) as other:
                for number in range(20):
                    async with client_at(daemon.socket) as victim:
                        whole = victim.connection.send(Request(1, "mint", {"kind": "dead", "state": "{}"}))
                        half = victim.connection.send(Request(2, "list", {}))[:-3]
                        await victim.socket.send(whole + (half if number % 2 else b""))
                while len((await other.request("status"))["sessions"]) > 1:
                    await trio.lowlevel.checkpoint()
                listed = await other.request("list", kind="dead", limit=100)
    assert "error" not in listed
    assert len(listed["handles"]) <= 20


@linux
@pytest.mark.once
@pytest.mark.requirement("C20", "P6", "P7")
async def test_connections_take_no_descriptor_that_the_daemon_or_another_client_needs(
    daemon: DaemonProcess,
) -> None:
    """200 connections under a limit of 64: everybody else is served, and one line of the log says why."""
    status = [sys.executable, "-m", "mcpstated.cli", "--data-dir", str(daemon.data_dir), "status"]
    with trio.fail_after(60):
        async with neighbour(daemon.socket) as client, shim_at(daemon.socket) as shim:
            await shim.handshake()
            with ExitStack() as stack:
                for _ in range(200):
                    stack.enter_context(socket.socket(socket.AF_UNIX)).connect(daemon.socket)
                minted = await shim.tool("state_save", kind="crowded", state={"l": []})
                assert (await shim.tool("state_load", handle=minted["handle"]))["state"] == {"l": []}
                assert "error" not in await client.request("status")
                assert daemon.descriptors() < LIMIT
                await trio.run_process(status, capture_stdout=True)  # fails if it is not served
            await until_welcomed(daemon.socket)
    assert daemon.log().count("connections of a process refused") == 1
    assert " error " not in daemon.log()


@pytest.mark.requirement("C20", "P7")
async def test_connecting_without_a_pause_is_closed_unheard_and_said_once(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A program in a loop costs an accept each time; the log names it once, and its rate comes back."""
    async with daemon_in(data_dir) as daemon:
        with trio.fail_after(30):
            async with neighbour(daemon.socket):
                unheard = 0
                for _ in range(2 * CONNECTION_BURST):
                    async with connected(daemon.socket) as peer:
                        try:
                            await peer.send(hello("library"))
                            unheard += not isinstance(await peer.receive(), Welcome)
                        except (ConnectionResetError, BrokenPipeError):
                            unheard += 1
                assert unheard > CONNECTION_BURST // 2
            await until_welcomed(daemon.socket)
    assert caplog.text.count("connections of a process refused") == 1


@pytest.mark.requirement("P7")
async def test_one_process_cannot_have_all_sessions(data_dir: Path) -> None:
    """A program that forgets to close its connections keeps out itself."""
    async with daemon_in(data_dir, "[limits]\nmax_sessions = 4\n") as daemon, trio.open_nursery() as nursery:

        async def hold(*, task_status: trio.TaskStatus[None]) -> None:
            async with client_at(daemon.socket):
                task_status.started()
                await trio.sleep_forever()

        with trio.fail_after(20):
            for _ in range(3):
                await nursery.start(hold)
            async with connected(daemon.socket) as one_more:
                await one_more.send(hello("library"))
                goodbye = await farewell(one_more)
            async with connected(daemon.socket) as person:
                await person.send(hello("cli"))
                assert isinstance(await person.receive(), Welcome)
        nursery.cancel_scope.cancel()

    assert goodbye.reason == "refused"
    assert "This process already holds 3 sessions" in goodbye.text


@pytest.mark.requirement("P7")
async def test_a_watch_that_begins_makes_room_for_the_request_behind_it(data_dir: Path) -> None:
    """A watch stops counting when it is one: nothing may wait for a request that will never end."""
    async with daemon_in(data_dir, "[limits]\nmax_in_flight = 1\n") as daemon:
        for _ in range(10):
            async with client_at(daemon.socket) as client:
                with trio.fail_after(10):
                    messages = [Request(1, "watch", {}), Request(2, "status", {}), Cancel(1)]
                    await client.socket.send(b"".join(map(client.connection.send, messages)))
                    answers = [await client.receive(), await client.receive()]
                assert not any(isinstance(answer, Failure) for answer in answers)
                assert {answer.id for answer in answers if isinstance(answer, Response)} == {1, 2}
