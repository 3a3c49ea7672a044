"""Ring 3: one connection from hello to goodbye, against a daemon in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from mcpstated.protocol.messages import Cancel, Event, Failure, Hello, Request, Response, Welcome
from support.daemons import daemon_in
from support.wire import client_at, connected, farewell, hello, shim_at


async def test_a_client_is_welcomed_with_what_it_may_ask_for(data_dir: Path) -> None:
    """Features are asked for by name, so the names must be told."""
    async with daemon_in(data_dir) as daemon, connected(daemon.socket) as peer:
        with trio.fail_after(10):
            await peer.send(hello("library"))
            welcome = await peer.receive()

    assert isinstance(welcome, Welcome)
    assert {"status", "load", "patch", "watch", "stop"} <= set(welcome.capabilities)
    assert welcome.limits["max_frame_bytes"] == daemon.settings.limits.max_frame_bytes


async def test_a_version_nobody_shares_is_refused_with_the_command_that_helps(data_dir: Path) -> None:
    """The sentence names both sides, or people cannot tell which one to change."""
    async with daemon_in(data_dir) as daemon, connected(daemon.socket) as peer:
        with trio.fail_after(10):
            await peer.send(Hello(98, 99, [], "library", "9.9.9", b"", "", "", 1))
            goodbye = await farewell(peer)

    assert goodbye.reason == "version_skew"
    assert "9.9.9" in goodbye.text
    assert "mcpstated restart" in goodbye.text


@pytest.mark.requirement("P7")
@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x02\x91\xc0",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
    ],
)
async def test_what_is_not_the_protocol_ends_that_connection_with_a_reason(
    data_dir: Path, garbage: bytes
) -> None:
    """A program that found the wrong socket learns so; everybody else is served on."""
    async with (
        daemon_in(data_dir) as daemon,
        client_at(daemon.socket) as other,
        connected(daemon.socket) as peer,
    ):
        with trio.fail_after(10):
            await peer.socket.send(garbage)
            goodbye = await farewell(peer)
            assert goodbye.reason == "protocol_error"
            assert goodbye.text
            assert "daemon" in await other.request("status")


@pytest.mark.requirement("P6")
async def test_a_frame_above_the_limit_is_refused_before_it_is_read(data_dir: Path) -> None:
    """Four bytes must not make the daemon allocate gigabytes."""
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as peer:
        with trio.fail_after(10):
            await peer.socket.send((daemon.settings.limits.max_frame_bytes + 1).to_bytes(4, "big"))
            goodbye = await farewell(peer)

    assert str(daemon.settings.limits.max_frame_bytes) in goodbye.text


@pytest.mark.requirement("P6")
async def test_a_peer_that_has_not_said_who_it_is_gets_only_a_small_frame(data_dir: Path) -> None:
    """Connections are cheap to open: none may hold megabytes before its hello."""
    async with daemon_in(data_dir) as daemon, connected(daemon.socket) as stranger:
        with trio.fail_after(10):
            await stranger.socket.send((1 << 20).to_bytes(4, "big"))
            assert (await farewell(stranger)).reason == "protocol_error"


async def test_an_unknown_operation_or_parameter_is_refused_by_name(data_dir: Path) -> None:
    """Skew shows as an error, never as a default."""
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as client:
        with trio.fail_after(10):
            unknown = await client.request("frobnicate")
            misspelt = await client.request("load", handel="x")
            wrong_type = await client.request("load", handle=7)
            await client.send(Request(90, "load", {b"handle": "x"}))  # type: ignore[dict-item]
            odd = await client.receive()
            again = await client.request("status")

    assert isinstance(odd, Failure)
    assert odd.error["code"] == "invalid_input"
    assert unknown["error"]["field"] == "operation"
    assert misspelt["error"]["field"] == "handel"
    assert wrong_type["error"] == {
        "code": "invalid_input",
        "message": "handle must be a string.",
        "field": "handle",
    }
    assert "daemon" in again


async def test_a_document_goes_there_and_back_as_text(data_dir: Path) -> None:
    """msgpack stops at 64 bits and does not know -0.0 from JSON's; text keeps what the client wrote."""
    text = '{"n":123456789012345678901234567890,"z":-0.0,"one":1.0,"u":"\\u0000\u2028"}'
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as client:
        with trio.fail_after(10):
            minted = await client.request("mint", kind="test", state=text)
            loaded = await client.request("load", handle=minted["info"]["handle"])

    assert loaded["state"] == text
    assert loaded["version"] == 1


@pytest.mark.requirement("P5", "C35")
async def test_one_user_meets_anothers_handle_as_if_it_did_not_exist(data_dir: Path) -> None:
    """Not even its existence may be told."""
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket, user="ann") as ann:
        async with client_at(daemon.socket, user="bob") as bob:
            with trio.fail_after(10):
                handle = (await ann.request("mint", kind="test", state="{}"))["info"]["handle"]
                theirs = await bob.request("load", handle=handle)
                nobodys = await bob.request("load", handle="test_aaaaaaaa")
                listed = await bob.request("list")

    assert theirs["error"]["message"].replace(handle, "H") == nobodys["error"]["message"].replace(
        "test_aaaaaaaa", "H"
    )
    assert listed["handles"] == []


@pytest.mark.requirement("C35")
@pytest.mark.parametrize("user", [" a", "a ", "a\nb", "x" * 257])
async def test_a_user_that_is_no_user_is_refused(data_dir: Path, user: str) -> None:
    """Names that look alike must not become two users, nor two names one."""
    async with daemon_in(data_dir) as daemon, connected(daemon.socket) as peer:
        with trio.fail_after(10):
            await peer.send(hello("library", user=user))
            assert (await farewell(peer)).reason == "refused"


@pytest.mark.requirement("P6")
async def test_sessions_above_the_limit_are_refused_and_welcome_later(data_dir: Path) -> None:
    """The limit costs the newcomer one clear word, and nothing is remembered."""
    async with daemon_in(data_dir, "[limits]\nmax_sessions = 1\n") as daemon:
        with trio.fail_after(10):
            async with client_at(daemon.socket), connected(daemon.socket) as late:
                await late.send(hello("library"))
                goodbye = await farewell(late)
                assert goodbye.reason == "refused"
                assert "1 sessions" in goodbye.text
            while True:
                async with connected(daemon.socket) as retry:
                    await retry.send(hello("library"))
                    if isinstance(await retry.receive(), Welcome):
                        break


@pytest.mark.requirement("P6")
async def test_a_full_daemon_can_still_be_looked_at_and_stopped(data_dir: Path) -> None:
    """Whoever filled it, people must be able to see that and to end it."""
    async with daemon_in(data_dir, "[limits]\nmax_sessions = 1\n") as daemon, client_at(daemon.socket):
        async with connected(daemon.socket) as person:
            with trio.fail_after(10):
                await person.send(hello("cli"))
                assert isinstance(await person.receive(), Welcome)


@pytest.mark.requirement("P6")
async def test_requests_above_the_limit_wait_instead_of_failing(data_dir: Path) -> None:
    """A client that queues a thousand calls gets a thousand answers."""
    async with (
        daemon_in(data_dir, "[limits]\nmax_in_flight = 2\n") as daemon,
        client_at(daemon.socket) as client,
    ):
        with trio.fail_after(30):
            handle = (await client.request("mint", kind="t", state='{"l":[]}'))["info"]["handle"]
            ops = '[{"op":"append","path":"l","value":1}]'
            async with trio.open_nursery() as nursery:

                async def send_all() -> None:
                    for n in range(1000):
                        await client.send(Request(100 + n, "patch", {"handle": handle, "ops": ops}))

                nursery.start_soon(send_all)
                answers = [await client.receive() for _ in range(1000)]

    assert all(isinstance(answer, Response) for answer in answers)
    assert sorted(answer.id for answer in answers if isinstance(answer, Response)) == list(range(100, 1100))


async def test_a_request_id_in_use_breaks_the_protocol(data_dir: Path) -> None:
    """Two answers under one number could not be told apart."""
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as client:
        with trio.fail_after(10):
            await client.send(Request(1, "watch", {}))
            assert isinstance(await client.receive(), Response)
            await client.send(Request(1, "status", {}))
            assert (await farewell(client)).reason == "protocol_error"


async def test_a_conflict_over_numbers_above_64_bits_is_answered(data_dir: Path) -> None:
    """msgpack cannot carry them, so what a conflict tells of the state travels as text."""
    state = '{"n":123456789012345678901234567890}'
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as client:
        with trio.fail_after(10):
            handle = (await client.request("mint", kind="t", state=state))["info"]["handle"]
            await client.request("save", handle=handle, state='{"n":1}', expect_version=1)
            await client.request("save", handle=handle, state=state, expect_version=2)
            answer = await client.request("save", handle=handle, state="{}", expect_version=1)

    assert answer["error"]["code"] == "stale_write"
    assert json.loads(answer["error"]["current"])["state"] == json.loads(state)


async def test_a_clients_odd_name_does_not_keep_status_from_others(data_dir: Path) -> None:
    """One client's half of a surrogate pair must not make everybody's status fail."""
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as client:
        async with shim_at(daemon.socket) as shim:
            with trio.fail_after(10):
                await shim.handshake("odd \ud800 \x1b[2J name")
                status = await client.request("status")

    (session,) = [session for session in status["sessions"] if session["role"] == "shim"]
    assert session["client"].isprintable()


@pytest.mark.requirement("P6")
async def test_watches_do_not_stand_in_the_way_of_requests(data_dir: Path) -> None:
    """A watch never ends by itself: it must not use up what requests may use."""
    async with daemon_in(data_dir, "[limits]\nmax_in_flight = 2\nmax_watches = 2\n") as daemon:
        async with client_at(daemon.socket) as client:
            with trio.fail_after(10):
                for number in (1, 2):
                    await client.send(Request(number, "watch", {}))
                    assert isinstance(await client.receive(), Response)
                await client.send(Request(3, "watch", {}))
                refused = await client.receive()
                await client.send(Cancel(1))
                await client.send(Request(4, "status", {}))
                answered = await client.receive()

    assert isinstance(refused, Failure)
    assert isinstance(answered, Response)
    assert answered.id == 4


async def test_a_watch_tells_changes_of_its_user_after_their_commit(data_dir: Path) -> None:
    """P3: what an event tells of can be read."""
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket, user="ann") as watcher:
        async with client_at(daemon.socket, user="ann") as ann, client_at(daemon.socket, user="bob") as bob:
            with trio.fail_after(10):
                await watcher.send(Request(1, "watch", {}))
                assert await watcher.receive() == Response(1, {"watching": True})
                await bob.request("mint", kind="other", state="{}")
                handle = (await ann.request("mint", kind="mine", state="{}"))["info"]["handle"]
                event = await watcher.receive()
                assert isinstance(event, Event)
                assert (event.payload["handle"], event.payload["action"]) == (handle, "mint")

                await watcher.send(Cancel(1))
                await watcher.send(Request(2, "status", {}))
                answer = await watcher.receive()
                assert isinstance(answer, Response | Failure)


async def test_stop_is_answered_before_the_goodbye(data_dir: Path) -> None:
    """`mcpstated stop` must be able to say that it worked."""
    async with (
        daemon_in(data_dir) as daemon,
        client_at(daemon.socket) as client,
        shim_at(daemon.socket) as shim,
    ):
        with trio.fail_after(20):
            assert "pid" in await client.request("stop")
            assert (await farewell(client)).reason == "stopping"
            assert (await farewell(shim)).reason == "stopping"
            await daemon.ended.wait()

    assert daemon.exit_code == 0
    assert not Path(daemon.socket).exists()


async def test_status_tells_who_is_connected(data_dir: Path) -> None:
    """People look here first when something is odd."""
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as client:
        async with shim_at(daemon.socket, user="ann", writer="desk/test") as shim:
            with trio.fail_after(10):
                await shim.handshake("Claude Code")
                status = await client.request("status")

    (session,) = [session for session in status["sessions"] if session["role"] == "shim"]
    assert session["client"] == "Claude Code 1"
    assert session["user"] == "ann"
    assert status["store"]["path"] == daemon.settings.database
    assert status["daemon"]["socket"] == daemon.socket
