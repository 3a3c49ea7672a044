"""Ring 4: how a shim ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from support.fake_daemon import fake_daemon
from support.shim_process import SHIM, shim_environment, shim_process

ENDING_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.requirement("C17")
async def test_the_end_of_input_waits_for_the_answers(data_dir: Path, tmp_path: Path) -> None:
    """C17: `printf` into a shim, output to a file: every answer is there, and the exit code is 0."""
    out = tmp_path / "out"
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        with out.open("wb") as stream:
            process = await trio.lowlevel.open_process(
                SHIM, stdin=subprocess.PIPE, stdout=stream, env=shim_environment(data_dir)
            )
        assert process.stdin is not None
        await process.stdin.send_all(b"initialize\ninitialized\npatch 3\npatch 4\npatch 5 without newline")
        await process.stdin.aclose()
        end = await daemon.accept()
        forwards = await end.forwards(5)
        assert forwards[4].line == b"patch 5 without newline"
        await end.deliver(b"welcome", 1, keep=True)
        await end.settle(2, keep=True)
        for seq in (4, 3, 5):
            await end.deliver(b"result %d" % seq, seq)
        assert await process.wait() == 0
    assert out.read_bytes() == b"welcome\nresult 4\nresult 3\nresult 5\n"


@pytest.mark.requirement("C17")
async def test_a_request_that_is_never_answered_keeps_nobody(data_dir: Path) -> None:
    """C17: clients open a subscription and close the pipe; the shim must not hang about for it."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            end = await daemon.accept()
            await shim.say(b"listen")
            await end.forward()
            await shim.end_input()
            assert await shim.exit_code() == 0


@pytest.mark.requirement("C17", "P2")
async def test_answers_survive_a_kill_after_the_end_of_input(data_dir: Path) -> None:
    """P2: the client has said all it had to say, and its calls are still resent and answered."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            first = await daemon.accept()
            await shim.say(b"call")
            await first.forward()
            await shim.end_input()
            first.hang_up()
            second = await daemon.accept()
            await second.forward()
            await second.deliver(b"result", 1)
            assert await shim.stdout.rest() == b"result\n"
            assert await shim.exit_code() == 0


@pytest.mark.requirement("C17")
async def test_a_client_that_says_nothing_and_leaves_is_let_go(data_dir: Path) -> None:
    """Clients start the command twice and throw one away; no daemon is waited for on its account."""
    with trio.fail_after(20):
        async with shim_process(data_dir) as shim:
            await shim.end_input()
            assert await shim.exit_code() == 0
            assert await shim.stderr.rest() == b""


@pytest.mark.requirement("C17")
async def test_a_dead_output_ends_the_shim_quietly(data_dir: Path) -> None:
    """C17: a client that closed its reading end is gone."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            end = await daemon.accept()
            assert shim.process.stdout is not None
            await shim.process.stdout.aclose()
            await end.deliver(b"for nobody", None)
            assert await shim.exit_code() == 0
            assert await shim.stderr.rest() == b""


@pytest.mark.requirement("C17")
@pytest.mark.parametrize("number", ENDING_SIGNALS)
@pytest.mark.parametrize("moment", ["in the greeting", "idle", "in mid-call"])
async def test_signals_end_it_at_once_and_quietly(data_dir: Path, number: int, moment: str) -> None:
    """C17: clients send SIGINT and SIGTERM in a hurry and show a traceback as a failure."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            end = await daemon.accept_silently()
            if moment != "in the greeting":
                await end.greet()
                await shim.say(b"call")
                await end.forward()
            if moment == "idle":
                await end.deliver(b"result", 1)
                await shim.stdout.next()
            shim.process.send_signal(number)
            assert await shim.exit_code() == 0
            assert await shim.stdout.rest() == b""
            assert await shim.stderr.rest() == b""


@pytest.mark.requirement("C17", "C19")
async def test_a_signal_that_the_client_blocked_or_ignored_still_ends_it(data_dir: Path) -> None:
    """C19: blocked and ignored signals are inherited; the shim must not become unkillable by that."""
    code = (
        "import os, signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'mcpstated.cli', 'shim'])\n"
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        with trio.fail_after(20), fake_daemon(data_dir) as daemon:
            await daemon.listen()
            async with shim_process(data_dir, command=[sys.executable, "-c", code]) as shim:
                await daemon.accept()
                shim.process.send_signal(number)
                assert await shim.exit_code() == 0


SUBREAPER = """
import ctypes, os, subprocess, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
wrapper = subprocess.Popen(sys.argv[1:])
print(wrapper.pid, file=sys.stderr, flush=True)
wrapper.wait()
os.read(int(os.environ["GO"]), 1)
"""
WRAPPED = ["sh", "-c", '"$0" -m mcpstated.cli shim; :', sys.executable]


@pytest.mark.requirement("C13")
@pytest.mark.parametrize(
    "kind",
    [
        "plain",
        pytest.param(
            "subreaper", marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux has subreapers")
        ),
    ],
)
async def test_it_leaves_when_its_wrapper_is_killed_and_something_holds_stdin(
    data_dir: Path, kind: str
) -> None:
    """C13: a shell between client and shim dies, a third process still holds the pipe: no orphan stays."""
    reading, writing = os.pipe()  # whoever adopts the shim stays until this is written to
    environ = shim_environment(data_dir, GO=str(reading))
    command = [sys.executable, "-c", SUBREAPER, *WRAPPED] if kind == "subreaper" else WRAPPED
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            pass_fds=[reading],
        )
        assert process.stdin is not None
        assert process.stderr is not None
        end = await daemon.accept()
        await process.stdin.send_all(b"last words\n")
        await end.forward()
        await end.settle(1)
        wrapper = int(await process.stderr.receive_some()) if kind == "subreaper" else process.pid
        os.kill(wrapper, signal.SIGKILL)
        await end.ended()
        os.write(writing, b"x")
        await process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            await stream.aclose()
    os.close(reading)
    os.close(writing)


@pytest.mark.requirement("C13")
async def test_what_an_ending_client_said_last_is_still_forwarded(data_dir: Path) -> None:
    """C13: a script that writes its calls and exits must not lose them to the speed of its own end."""
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        process = await trio.lowlevel.open_process(
            WRAPPED, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=shim_environment(data_dir)
        )
        assert process.stdin is not None
        assert process.stdout is not None
        silent = await daemon.accept_silently()  # the shim is up, and not reading its input now
        await process.stdin.send_all(b"one\ntwo\n")
        process.kill()
        await process.wait()
        await silent.greet()
        forwards = await silent.forwards(2)
        assert [forward.line for forward in forwards] == [b"one", b"two"]
        await silent.deliver(b"result", 1)
        await silent.settle(2)
        assert await process.stdout.receive_some() == b"result\n"
        await silent.ended()
        await process.stdin.aclose()
        await process.stdout.aclose()
