"""Ring 3: a shim's lines, both protocol eras, and what is settled how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpstated.protocol.messages import KEPT, RESENT, Deliver, Settled
from support.daemons import daemon_in
from support.wire import FakeShim, client_at, farewell, shim_at

INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "Old Client", "version": "1"},
}


def append(handle: str, value: object) -> dict[str, Any]:
    return {
        "name": "state_patch",
        "arguments": {"handle": handle, "ops": [{"op": "append", "path": "l", "value": value}]},
    }


async def new_list(shim: FakeShim) -> str:
    return (await shim.tool("state_save", kind="test", state={"l": []}))["handle"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_legacy_version_in_use_gets_its_handshake(data_dir: Path, version: str) -> None:
    """Real clients open with four different versions; each must get its own back."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            answer = await shim.ask(0, "initialize", {**INITIALIZE, "protocolVersion": version})

    assert answer["result"]["protocolVersion"] == version
    assert answer["result"]["serverInfo"]["name"] == "mcpstated"
    assert answer["id"] == 0


async def test_the_handshake_is_kept_for_the_next_daemon(data_dir: Path) -> None:
    """The client will not shake hands again, so the shim must be told to."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            initialize = await shim.settlement(await shim.say(id=1, method="initialize", params=INITIALIZE))
            initialized = await shim.settlement(await shim.say(method="notifications/initialized"))
            listing = await shim.settlement(await shim.say(id=2, method="tools/list"))

    assert isinstance(initialize, Deliver)
    assert initialize.keep
    assert initialized == Settled(2, keep=True)
    assert isinstance(listing, Deliver)
    assert not listing.keep


async def test_only_one_handshake_is_kept_however_many_there_are(data_dir: Path) -> None:
    """What is kept is sent again at every reconnect, so it must not grow."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            await shim.handshake()
            second = await shim.settlement(await shim.say(id=2, method="initialize", params=INITIALIZE))
            initialized = await shim.settlement(await shim.say(method="notifications/initialized"))

    assert isinstance(second, Deliver)
    assert not second.keep
    assert isinstance(initialized, Settled)
    assert not initialized.keep


async def test_a_failed_handshake_is_not_kept(data_dir: Path) -> None:
    """Replaying what was refused would refuse it for ever."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            answer = await shim.settlement(await shim.say(id=1, method="initialize", params={}))

    assert isinstance(answer, Deliver)
    assert b"error" in answer.line
    assert not answer.keep


async def test_both_eras_work_on_one_pipe_in_any_order(data_dir: Path) -> None:
    """A client that gets no answer to discover in time sends initialize down the same pipe."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            discover = await shim.modern(1, "server/discover")
            await shim.handshake()
            legacy = await shim.ask(2, "tools/list")
            modern = await shim.modern(3, "tools/list")
            saved = await shim.modern(
                4, "tools/call", name="state_save", arguments={"kind": "test", "state": {"a": 1}}
            )
            handle = saved["result"]["structuredContent"]["handle"]
            loaded = await shim.tool("state_load", handle=handle)

    assert "2026-07-28" in discover["result"]["supportedVersions"]
    assert {tool["name"] for tool in legacy["result"]["tools"]} == {
        tool["name"] for tool in modern["result"]["tools"]
    }
    assert loaded["state"] == {"a": 1}


@pytest.mark.requirement("C36")
async def test_odd_lines_cost_one_error_each_and_the_next_call_works(data_dir: Path) -> None:
    """Byte order mark, carriage return, blank, broken, batch: read on."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            await shim.handshake()
            marked = await shim.settlement(
                await shim.forward(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}\r')
            )
            blank = await shim.settlement(await shim.forward(b"\r"))
            errors = [
                await shim.settlement(await shim.forward(line))
                for line in (b"{bad", b"[]", b"42", b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}')
            ]
            answer = await shim.ask(2**53 + 1, "ping")

    assert isinstance(marked, Deliver)
    assert json.loads(marked.line) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert isinstance(blank, Settled)
    codes = [json.loads(error.line)["error"]["code"] for error in errors if isinstance(error, Deliver)]
    assert codes == [-32700, -32600, -32600, -32600]
    assert all(json.loads(error.line)["id"] is None for error in errors if isinstance(error, Deliver))
    assert answer["id"] == 2**53 + 1


@pytest.mark.requirement("C36")
async def test_one_id_twice_in_flight_gets_two_answers(data_dir: Path) -> None:
    """Inside the daemon a request is known by its line, so a careless client loses nothing."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            await shim.handshake()
            handle = await new_list(shim)
            first = await shim.say(id="same", method="tools/call", params=append(handle, 1))
            second = await shim.say(id="same", method="tools/call", params=append(handle, 2))
            settled = set()
            while len(settled) < 2:
                message = await shim.receive()
                if isinstance(message, Deliver) and message.answers in (first, second):
                    assert json.loads(message.line)["id"] == "same"
                    settled.add(message.answers)
            loaded = await shim.tool("state_load", handle=handle)

    assert sorted(loaded["state"]["l"]) == [1, 2]


@pytest.mark.requirement("C37")
@pytest.mark.parametrize(
    "method",
    ["prompts/list", "resources/list", "resources/templates/list", "completion/complete", "nonsense"],
)
async def test_a_method_that_is_not_offered_is_refused_at_once(data_dir: Path, method: str) -> None:
    """Clients probe; a prompt -32601 lets them go on."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            await shim.handshake()
            legacy = await shim.ask(1, method, {})
            modern = await shim.modern(2, method)
            after = await shim.ask(3, "ping")

    assert legacy["error"]["code"] == -32601
    assert modern["error"]["code"] in (-32601, -32602)
    assert after["result"] == {}


@pytest.mark.requirement("C33")
async def test_a_state_with_line_separators_comes_back_the_same(data_dir: Path) -> None:
    """Raw U+2028, U+2029 and U+0085 in a line are content, not the end of it."""
    text = "a\u2028b\u2029c\u0085d"
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            await shim.handshake()
            raw = json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "tools/call",
                    "params": {"name": "state_save", "arguments": {"kind": "t", "state": {"t": text}}},
                },
                ensure_ascii=False,
            )
            saved = await shim.settlement(await shim.forward(raw.encode()))
            assert isinstance(saved, Deliver)
            handle = json.loads(saved.line)["result"]["structuredContent"]["handle"]
            loaded = await shim.settlement(
                await shim.say(
                    id=2, method="tools/call", params={"name": "state_load", "arguments": {"handle": handle}}
                )
            )

    assert isinstance(loaded, Deliver)
    assert loaded.line.decode().splitlines() == [loaded.line.decode()]
    assert json.loads(loaded.line)["result"]["structuredContent"]["state"] == {"t": text}


@pytest.mark.requirement("C11")
@pytest.mark.parametrize("depth", [126, 127, 128, 129, 500, 1_000, 100_000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
async def test_a_state_nested_too_deeply_is_an_error_for_that_call_only(
    data_dir: Path, depth: int, pair: str
) -> None:
    """One limit, whatever the depth: what is stored can be loaded, and the pipe goes on."""
    opening = "[" if pair == "[]" else '{"a":'
    closing = pair[1]
    inner = depth - 1
    state = '{"v":' + opening * inner + ("1" if pair == "{}" else "") + closing * inner + "}"
    call = '{"name":"state_save","arguments":{"kind":"t","state":%s}}'
    line = '{"jsonrpc":"2.0","id":"deep","method":"tools/call","params":' + call + "}"
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(20):
            await shim.handshake()
            answer = await shim.settlement(await shim.forward((line % state).encode()))
            assert isinstance(answer, Deliver)
            reply = json.loads(answer.line)
            listed = await shim.tool("state_list")
            if depth <= 128:
                handle = reply["result"]["structuredContent"]["handle"]
                await shim.tool("state_load", handle=handle)

    assert reply["id"] == "deep"
    assert listed["total"] == (1 if depth <= 128 else 0)
    if depth > 128:
        assert "error" in reply or reply["result"]["isError"]


@pytest.mark.requirement("P2")
async def test_a_call_that_comes_again_is_applied_once_and_answered_the_same(data_dir: Path) -> None:
    """The connection broke before the answer came; the shim sends the line again under its number."""
    shim_id = b"s" * 16
    async with daemon_in(data_dir) as daemon:
        with trio.fail_after(10):
            async with shim_at(daemon.socket, shim_id=shim_id) as shim:
                await shim.handshake()
                handle = await new_list(shim)
                seq = await shim.say(id=7, method="tools/call", params=append(handle, "x"))
                first = await shim.settlement(seq)
            async with shim_at(daemon.socket, shim_id=shim_id) as shim:
                shim.seq = seq
                line = json.dumps(
                    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
                ).encode()
                await shim.forward(line, mode=KEPT, seq=1)
                await shim.forward(
                    b'{"jsonrpc":"2.0","method":"notifications/initialized"}', mode=KEPT, seq=2
                )
                call = json.dumps(
                    {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": append(handle, "x")}
                )
                await shim.forward(call.encode(), mode=RESENT, seq=seq)
                second = await shim.receive()
                loaded = await shim.tool("state_load", handle=handle)

    assert second == first
    assert loaded["state"]["l"] == ["x"]
    assert loaded["version"] == 2


@pytest.mark.requirement("P2")
async def test_a_call_that_comes_again_while_it_runs_waits_for_the_first(data_dir: Path) -> None:
    """Both runs at once would apply it twice."""
    shim_id = b"r" * 16
    async with daemon_in(data_dir) as daemon:
        with trio.fail_after(60):
            async with shim_at(daemon.socket, shim_id=shim_id) as shim:
                await shim.handshake()
                handle = await new_list(shim)
            for round_ in range(20):
                seq = 100 + round_
                call = json.dumps(
                    {"jsonrpc": "2.0", "id": seq, "method": "tools/call", "params": append(handle, seq)}
                )
                async with shim_at(daemon.socket, shim_id=shim_id) as shim:
                    await shim.handshake()
                    await shim.forward(call.encode(), seq=seq)
                async with shim_at(daemon.socket, shim_id=shim_id) as shim:
                    await shim.handshake()
                    await shim.forward(call.encode(), mode=RESENT, seq=seq)
                    await shim.settlement(seq)
                    loaded = await shim.tool("state_load", handle=handle)
                    assert loaded["state"]["l"].count(seq) == 1


@pytest.mark.requirement("C17")
async def test_what_a_dead_shim_forwarded_is_finished(data_dir: Path) -> None:
    """SIGKILL of a shim in mid-call: the daemon has the line, so the line counts."""
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as client:
        with trio.fail_after(10):
            async with shim_at(daemon.socket) as shim:
                await shim.handshake()
                handle = await new_list(shim)
                for n in range(20):
                    await shim.say(id=n, method="tools/call", params=append(handle, n))
            while True:
                loaded = json.loads((await client.request("load", handle=handle))["state"])
                if len(loaded["l"]) == 20:
                    break

    assert loaded["l"] == list(range(20))


@pytest.mark.requirement("P2", "P7")
async def test_a_client_that_stops_reading_for_a_while_gets_every_answer_after_a_reconnect(
    data_dir: Path,
) -> None:
    """Cut off as a slow reader in the middle of a call, its shim sends again what was not settled."""
    shim_id = b"p" * 16
    config = "[limits]\nmax_unread_bytes = 400000\nunread_grace_seconds = 1\n"
    load: dict[str, Any] = {"name": "state_load", "arguments": {"max_bytes": 2_000_000}}
    async with daemon_in(data_dir, config) as daemon:
        with trio.fail_after(60):
            async with shim_at(daemon.socket, shim_id=shim_id) as shim:
                await shim.handshake()
                big = {"t": "x" * 300_000}
                load["arguments"]["handle"] = (await shim.tool("state_save", kind="big", state=big))["handle"]
                lines = {}
                for _ in range(30):
                    seq = await shim.say(id=shim.seq, method="tools/call", params=load)
                    call = {"jsonrpc": "2.0", "id": seq, "method": "tools/call", "params": load}
                    lines[seq] = json.dumps(call).encode()
                while await shim.still_has_its_session(daemon.socket):
                    await trio.sleep(0.1)
            async with shim_at(daemon.socket, shim_id=shim_id) as shim:
                shim.seq = max(lines)
                await shim.handshake()
                settled: set[int] = set()
                async with trio.open_nursery() as nursery:

                    async def send_again() -> None:
                        for seq, line in lines.items():
                            await shim.forward(line, mode=RESENT, seq=seq)

                    nursery.start_soon(send_again)
                    while lines.keys() - settled:
                        message = await shim.receive()
                        if isinstance(message, Deliver) and message.answers is not None:
                            settled.add(message.answers)


@pytest.mark.requirement("P7")
@pytest.mark.parametrize(("seq", "floor"), [(2**63, 0), (2**64 - 1, 0), (1, 2**63)])
async def test_a_line_number_no_database_can_keep_breaks_the_protocol(
    data_dir: Path, seq: int, floor: int
) -> None:
    """One peer that lies must not make the writes of others fail."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as liar:
        with trio.fail_after(10):
            await liar.forward(b"{}", seq=seq, floor=floor)
            assert (await farewell(liar)).reason == "protocol_error"


@pytest.mark.requirement("C11")
@pytest.mark.parametrize("value", ["[" * 5_000 + "]" * 5_000, "9" * 4_301])
async def test_a_call_whose_arguments_cannot_be_parsed_is_an_invalid_input(
    data_dir: Path, value: str
) -> None:
    """The model sees the same kind of error whichever side of the parser's own limit a value is on."""
    arguments = '{"kind":"t","state":{"v":' + value + "}}"
    line = (
        '{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"state_save","arguments":' + arguments
    )
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            await shim.handshake()
            answer = await shim.settlement(await shim.forward(line.encode() + b"}}"))

    assert isinstance(answer, Deliver)
    reply = json.loads(answer.line)
    assert reply["id"] == 4
    assert reply["result"]["isError"] is True
    assert reply["result"]["structuredContent"]["error"]["code"] == "invalid_input"


async def test_a_cancelled_call_is_settled_without_an_answer(data_dir: Path) -> None:
    """MCP forbids answering a cancelled request; the shim must not wait for one."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            await shim.handshake()
            handle = await new_list(shim)
            call = await shim.say(id=5, method="tools/call", params=append(handle, 1))
            cancel = await shim.say(method="notifications/cancelled", params={"requestId": 5})
            settled: dict[int, object] = {}
            while not {call, cancel} <= set(settled):
                message = await shim.receive()
                if isinstance(message, Deliver) and message.answers is not None:
                    settled[message.answers] = message
                elif isinstance(message, Settled):
                    settled[message.seq] = message
            stray = await shim.settlement(
                await shim.say(method="notifications/cancelled", params={"requestId": 99})
            )

    assert isinstance(settled[cancel], Settled)
    assert isinstance(stray, Settled)


async def test_an_answer_to_no_question_is_settled(data_dir: Path) -> None:
    """A client's reply to a request that was never made harms nobody."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            assert await shim.settlement(await shim.say(id=1, result={})) == Settled(1)


async def test_a_call_before_the_handshake_is_refused_and_the_handshake_still_works(data_dir: Path) -> None:
    """The order of the protocol is the client's duty; getting it wrong once must not break the pipe."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(10):
            early = await shim.ask(1, "tools/list")
            await shim.handshake()
            late = await shim.ask(2, "tools/list")

    assert "error" in early
    assert "result" in late


async def test_the_writer_is_host_and_client_unless_the_shim_names_one(data_dir: Path) -> None:
    """People recognise their own programs in last_writer."""
    async with daemon_in(data_dir) as daemon:
        with trio.fail_after(10):
            async with shim_at(daemon.socket) as shim:
                await shim.handshake("Claude Code")
                handle = await new_list(shim)
                assert (await shim.tool("state_load", handle=handle))["last_writer"].endswith("/claude-code")
            async with shim_at(daemon.socket, writer="desk/me") as shim:
                await shim.handshake("Claude Code")
                handle = await new_list(shim)
                assert (await shim.tool("state_load", handle=handle))["last_writer"] == "desk/me"
