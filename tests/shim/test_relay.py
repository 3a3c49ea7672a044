"""Ring 4: a real shim process between a test that is its client and a test that is its daemon."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import trio

from mcpstated.protocol.messages import (
    BROKEN,
    FRESH,
    KEPT,
    RESENT,
    SKEW,
    STOPPING,
    UPGRADING,
    Forward,
    Goodbye,
)
from support.fake_daemon import fake_daemon
from support.shim_process import SHIM, shim_environment, shim_process


def said(forwards: list[Forward]) -> list[tuple[int, int, bytes]]:
    return [(forward.seq, forward.mode, forward.line) for forward in forwards]


@pytest.mark.requirement("P2", "C33")
async def test_lines_go_through_verbatim_in_both_directions(data_dir: Path) -> None:
    """C33: the shim reads no JSON, so numbers, spelling and odd characters stay what they are."""
    line = '{"t":"a\u2028b\u2029c\u0085d", "n": 1.0e400, "k": 1, "k": 2}\r'.encode()
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            end = await daemon.accept()
            assert (end.hello.role, len(end.hello.shim_id), end.hello.pid) == ("shim", 16, shim.process.pid)
            await shim.say(line, b"second")
            assert said(await end.forwards(2)) == [(1, FRESH, line), (2, FRESH, b"second")]
            await end.deliver(line, 1)
            await end.deliver(b"a notification", None)
            assert [await shim.stdout.next(), await shim.stdout.next()] == [line, b"a notification"]


async def test_the_hello_says_for_whom(data_dir: Path) -> None:
    """Whose state a client sees, and under which label it writes, is told by its environment."""
    environ = shim_environment(data_dir, MCPSTATED_USER="ann", MCPSTATE_WRITER="laptop/editor")
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir, environ=environ):
            end = await daemon.accept()
    assert (end.hello.user, end.hello.writer) == ("ann", "laptop/editor")


@pytest.mark.requirement("P2")
async def test_after_a_kill_the_next_daemon_gets_kept_then_unsettled_then_new_lines(data_dir: Path) -> None:
    """P2: the handshake is heard again, calls are sent again under their old numbers, nothing is lost."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            first = await daemon.accept()
            await shim.say(b"initialize", b"initialized", b"done", b"call", b"listen")
            await first.forwards(5)
            await first.deliver(b"welcome", 1, keep=True)
            await first.settle(2, keep=True)
            await first.deliver(b"result", 3)
            assert [await shim.stdout.next(), await shim.stdout.next()] == [b"welcome", b"result"]
            first.hang_up()

            second = await daemon.accept()
            assert second.hello.shim_id == first.hello.shim_id
            assert said(await second.forwards(4)) == [
                (1, KEPT, b"initialize"),
                (2, KEPT, b"initialized"),
                (4, RESENT, b"call"),
                (5, RESENT, b"listen"),
            ]
            await second.deliver(b"late result", 4)
            await shim.say(b"new")
            forward = await second.forward()
            assert (forward.seq, forward.mode, forward.floor) == (6, FRESH, 5)
            assert await shim.stdout.next() == b"late result"


@pytest.mark.requirement("P2")
async def test_a_line_that_is_answered_twice_is_delivered_once(data_dir: Path) -> None:
    """P2: two answers under one id would confuse any client."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            end = await daemon.accept()
            await shim.say(b"call", b"next")
            await end.forwards(2)
            await end.deliver(b"once", 1)
            await end.deliver(b"twice", 1)
            await end.settle(1)
            await end.deliver(b"of nothing", 99)
            await end.deliver(b"next", 2)
            assert [await shim.stdout.next(), await shim.stdout.next()] == [b"once", b"next"]


@pytest.mark.requirement("P2")
async def test_lines_said_while_there_is_no_daemon_are_new_to_the_next_one(data_dir: Path) -> None:
    """P2: the ledger is looked at only for lines that may have been applied."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        async with shim_process(data_dir) as shim:
            await shim.say(b"early")
            await daemon.listen()
            first = await daemon.accept()
            assert said(await first.forwards(1)) == [(1, FRESH, b"early")]
            daemon.vanish()
            first.hang_up()
            await shim.say(b"between")
            await daemon.listen()
            second = await daemon.accept()
            assert said(await second.forwards(2)) == [(1, RESENT, b"early"), (2, FRESH, b"between")]


@pytest.mark.requirement("P2")
async def test_after_stopping_the_daemon_is_wanted_again_only_with_the_next_line(data_dir: Path) -> None:
    """P2: `mcpstated stop` must not be undone by every client that is attached and silent."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            first = await daemon.accept()
            await shim.say(b"initialize")
            await first.forward()
            await first.deliver(b"welcome", 1, keep=True)
            await first.say_goodbye(STOPPING)
            assert await shim.stdout.next() == b"welcome"

            with trio.move_on_after(0.5):
                await daemon.accept_silently()
                pytest.fail("the shim came back although nobody asked for anything")

            await shim.say(b"call")
            second = await daemon.accept()
            assert said(await second.forwards(2)) == [(1, KEPT, b"initialize"), (2, FRESH, b"call")]


@pytest.mark.requirement("P2")
@pytest.mark.parametrize("reason", [STOPPING, UPGRADING, BROKEN])
async def test_unsettled_lines_bring_the_shim_back_at_once(data_dir: Path, reason: str) -> None:
    """P2: a call that was not answered needs a daemon, whatever made the last one leave."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            first = await daemon.accept()
            await shim.say(b"call")
            await first.forward()
            await first.say_goodbye(reason)
            second = await daemon.accept()
            assert said(await second.forwards(1)) == [(1, RESENT, b"call")]


@pytest.mark.requirement("P2")
async def test_an_upgrade_brings_an_idle_shim_back_at_once(data_dir: Path) -> None:
    """P2: the newer daemon has its clients attached before they ask for anything."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir):
            await (await daemon.accept()).say_goodbye(UPGRADING)
            await daemon.accept()


@pytest.mark.requirement("P2", "P7")
@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x01\xc1", b"\xff" * 9, b"\x00" * 64]
)
async def test_garbage_from_the_daemon_costs_one_connection(data_dir: Path, garbage: bytes) -> None:
    """P7: bytes that are no protocol end the connection, never the shim."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            first = await daemon.accept()
            await shim.say(b"call")
            await first.forward()
            await first.socket.send(garbage)
            await first.ended()
            in_the_greeting = await daemon.accept_silently()
            await in_the_greeting.socket.send(garbage)
            await in_the_greeting.ended()
            third = await daemon.accept()
            assert said(await third.forwards(1)) == [(1, RESENT, b"call")]
            await third.deliver(b"result", 1)
            assert await shim.stdout.next() == b"result"


@pytest.mark.requirement("P6")
async def test_a_line_that_fits_no_frame_is_refused_and_the_rest_goes_on(data_dir: Path) -> None:
    """P6: passing the limit gives one clear error, and the daemon's own limit is the one that counts."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            end = await daemon.accept(max_frame_bytes=2000)
            await shim.say(b"x" * 1936, b"y" * 1937, b"z" * 300_000, b"after")
            assert said(await end.forwards(2)) == [(1, FRESH, b"x" * 1936), (2, FRESH, b"after")]
            for _ in range(2):
                answer = await shim.answer()
                assert (answer["id"], answer["error"]["code"]) == (None, -32600)
                assert "1936 bytes" in answer["error"]["message"]


@pytest.mark.requirement("P6")
async def test_a_line_that_only_the_next_daemon_cannot_take_is_refused_then(data_dir: Path) -> None:
    """P6: a daemon with a lower limit must not be fed what it would cut the connection for."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            first = await daemon.accept()
            await shim.say(b"x" * 5000, b"small")
            await first.forwards(2)
            first.hang_up()
            second = await daemon.accept(max_frame_bytes=2000)
            assert said(await second.forwards(1)) == [(2, RESENT, b"small")]
            assert (await shim.answer())["error"]["code"] == -32600


@pytest.mark.requirement("P6")
async def test_a_daemon_may_send_more_than_the_usual_limit_if_it_said_so(data_dir: Path) -> None:
    """P6: limits are settings; a shim that keeps its own would cut off what the daemon allows."""
    line = b"y" * (17 * 1024 * 1024)
    with trio.fail_after(30), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            end = await daemon.accept(max_frame_bytes=32 * 1024 * 1024)
            await shim.say(b"call")
            await end.forward()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(end.deliver, line, 1)
                assert await shim.stdout.next() == line


@pytest.mark.requirement("P2", "C15")
async def test_without_a_daemon_the_shim_answers_itself_and_stays(tmp_path: Path, data_dir: Path) -> None:
    """P2: the client sees a clear error for each request, and the next call tries again."""
    place = tmp_path / "store"
    place.write_text("in the way")
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "state_list"}}
    environ = shim_environment(place)
    del environ["MCPSTATED_NO_SPAWN"]
    with trio.fail_after(20), fake_daemon(place) as daemon:
        async with shim_process(data_dir, environ=environ) as shim:
            await shim.say(b'{"jsonrpc":"2.0","id":"i","method":"initialize"}', json.dumps(call).encode())
            refused, result = await shim.answer(), await shim.answer()
            assert (refused["id"], refused["error"]["code"]) == ("i", -32000)
            assert str(place) in refused["error"]["message"]
            assert result["result"]["structuredContent"]["error"]["code"] == "daemon_unavailable"
            assert str(place).encode() in await shim.stderr.next()

            place.unlink()
            place.mkdir(mode=0o700)
            await daemon.listen()
            await shim.say(b"again")
            end = await daemon.accept()
            assert said(await end.forwards(1)) == [(3, FRESH, b"again")]


@pytest.mark.requirement("P2")
async def test_a_call_that_may_have_been_applied_is_answered_as_unknown(data_dir: Path) -> None:
    """C01: the daemon had the call and nobody can be asked what became of it."""
    call = {"id": 1, "method": "tools/call", "params": {"name": "x", "arguments": {"handle": "notes_1"}}}
    environ = shim_environment(data_dir)
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir, environ=environ) as shim:
            end = await daemon.accept()
            await shim.say(json.dumps(call).encode())
            await end.forward()
            daemon.vanish()
            daemon.path.write_text("not a socket")
            end.hang_up()
            answer = await shim.answer()
            error = answer["result"]["structuredContent"]["error"]
            assert (answer["id"], error["code"], error["handle"]) == (1, "outcome_unknown", "notes_1")
            assert str(daemon.path) in error["message"]

            daemon.path.unlink()
            await daemon.listen()
            await shim.say(b"next")
            assert said(await (await daemon.accept()).forwards(1)) == [(2, FRESH, b"next")]


@pytest.mark.requirement("P2")
async def test_version_skew_is_told_with_its_remedy(data_dir: Path) -> None:
    """P2: two versions side by side after an upgrade must not look like a broken client."""
    text = "This client (2.0) speaks protocol 2, the running daemon (1.0) 1. Run `mcpstated restart`."
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            await shim.say(b'{"id":1,"method":"tools/call","params":{"name":"state_list"}}')
            end = await daemon.accept_silently()
            await end.receive()
            await end.send(Goodbye(SKEW, text))
            end.hang_up()
            result = (await shim.answer())["result"]
            assert text in result["content"][0]["text"]
            assert result["structuredContent"]["error"]["hint"] == "Run: mcpstated restart"


@pytest.mark.requirement("P2")
async def test_a_path_that_cannot_be_used_is_told_to_the_client(data_dir: Path) -> None:
    """A client that passes `${HOME}` unexpanded shows only what comes back over the pipe."""
    environ = {**shim_environment(data_dir), "MCPSTATED_DATA_DIR": "${HOME}/state"}
    with trio.fail_after(20):
        async with shim_process(data_dir, environ=environ) as shim:
            await shim.say(b'{"id":1,"method":"initialize"}')
            assert "${HOME}" in (await shim.answer())["error"]["message"]


@pytest.mark.requirement("P8")
async def test_an_option_names_the_store(data_dir: Path) -> None:
    """Several clients pass no environment on, so the directory can stand in the arguments."""
    environ = shim_environment(data_dir)
    del environ["MCPSTATED_DATA_DIR"]
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir, command=[*SHIM, f"--data-dir={data_dir}"], environ=environ):
            await daemon.accept()
        async with shim_process(data_dir, command=[*SHIM, "--data-dir", str(data_dir)], environ=environ):
            await daemon.accept()


async def test_no_stray_print_reaches_the_client(data_dir: Path) -> None:
    """Descriptor 1 points to standard error, so even a C library cannot garble the protocol."""
    code = (
        "import os, sys, mcpstated.shim.relay as relay\n"
        "begin = relay.Relay.run\n"
        "def run(self):\n"
        "    os.write(1, b'stray bytes\\n'); print('stray print', flush=True); begin(self)\n"
        "relay.Relay.run = run\n"
        "from mcpstated.shim.main import main; sys.exit(main())\n"
    )
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir, command=[sys.executable, "-c", code]) as shim:
            end = await daemon.accept()
            await end.deliver(b"line", None)
            assert await shim.stdout.next() == b"line"
            assert [await shim.stderr.next(), await shim.stderr.next()] == [b"stray bytes", b"stray print"]


@pytest.mark.requirement("C17")
@pytest.mark.parametrize("closed", ["0<&-", "2>&-", "2>/dev/full"])
async def test_a_closed_standard_descriptor_is_no_trouble(data_dir: Path, closed: str) -> None:
    """A dead stderr means no logs; a closed stdin is the end of input; nothing else takes their numbers."""
    command = ["sh", "-c", f'exec "$0" -m mcpstated.cli shim {closed}', sys.executable]
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir, command=command) as shim:
            if closed.startswith("2"):
                end = await daemon.accept()
                await shim.say(b"call")
                await end.forward()
                await end.deliver(b"result", 1)
                assert await shim.stdout.next() == b"result"
                await shim.end_input()
            assert await shim.exit_code() == 0
