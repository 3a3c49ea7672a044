"""Ring 4: nobody waits for somebody who does not read, and nothing piles up."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from mcpstated.protocol.messages import Deliver
from mcpstated.shim.relay import MAX_PENDING_BYTES, MAX_UNSETTLED_BYTES
from support.fake_daemon import ShimEnd, fake_daemon
from support.shim_process import SHIM, Lines, shim_environment, shim_process

MIB = 1024 * 1024
STILL_SECONDS = 0.5
"""A shim that takes nothing for so long has stopped taking; a slow one only makes the test easier."""


@asynccontextmanager
async def shim_on_one_socketpair(data_dir: Path) -> AsyncIterator[tuple[trio.SocketStream, int]]:
    """Run a shim whose standard input and output are one socket; gives the client's end, and the shim's."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = await trio.lowlevel.open_process(
            SHIM, stdin=theirs.fileno(), stdout=theirs.fileno(), env=shim_environment(data_dir)
        )
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        try:
            yield stream, theirs.fileno()
        finally:
            process.kill()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
                await process.wait()
            await trio.aclose_forcefully(stream)


@pytest.mark.requirement("C05", "P7")
async def test_pings_go_in_while_a_big_reply_is_not_read(data_dir: Path) -> None:
    """C05: a client that reads slowly is still heard, its lines come out whole, its flags stay."""
    big = b"[" + b"1," * (MIB // 2) + b"1]"
    with trio.fail_after(30), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_on_one_socketpair(data_dir) as (client, shims_end):
            flags = fcntl.fcntl(shims_end, fcntl.F_GETFL)
            end = await daemon.accept()
            await client.send_all(b"get\n")
            await end.forward()
            pinged = trio.Event()

            async def answer() -> None:
                await end.deliver(big, 1)
                await pinged.wait()
                for seq in range(2, 52):
                    await end.deliver(b"pong", seq)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer)
                await client.send_all(b"".join(b"ping %d\n" % number for number in range(50)))
                pings = await end.forwards(50)  # not a byte of the reply has been read by now
                assert [ping.seq for ping in pings] == list(range(2, 52))
                pinged.set()
                received = b""
                while received.count(b"\n") < 51:
                    received += await client.receive_some(1024)
            assert received == big + b"\n" + b"pong\n" * 50
            assert fcntl.fcntl(shims_end, fcntl.F_GETFL) == flags


@pytest.mark.requirement("C05")
async def test_the_flags_of_pipes_stay_as_they_are(data_dir: Path) -> None:
    """C05: an inherited pipe has one set of flags for both processes, and clients rely on theirs."""
    reading, writing = os.pipe()
    answers, out = os.pipe()
    before = [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (reading, out)]
    with trio.fail_after(20), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        with subprocess.Popen(
            SHIM, stdin=reading, stdout=out, env=shim_environment(data_dir), close_fds=True
        ) as process:
            end = await daemon.accept()
            os.write(writing, b"call\n")
            await end.forward()
            await end.deliver(b"x" * 300_000, 1)
            received = 0
            while received < 300_001:
                received += len(await trio.to_thread.run_sync(os.read, answers, 65536))
            assert [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (reading, out)] == before
            os.close(writing)
            await trio.to_thread.run_sync(process.wait)
    for fd in (reading, answers, out):
        os.close(fd)


@pytest.mark.requirement("P6", "P7")
async def test_a_client_that_reads_nothing_stops_the_daemons_flow(data_dir: Path) -> None:
    """P6: what the client has not read is held up to a bound; the rest stays with the daemon."""
    with trio.fail_after(30), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            end = await daemon.accept()
            line = b"x" * 100_000
            taken = await fill(end, end.connection.send(Deliver(line, None)), 64 * MIB)
            assert taken < MAX_PENDING_BYTES + 4 * MIB

            assert await shim.stdout.next() == line
            assert await shim.stdout.next() == line


@pytest.mark.requirement("P6")
async def test_lines_that_nobody_settles_stop_the_clients_flow(data_dir: Path) -> None:
    """P6: a client that floods fills its own pipe, not the machine's memory."""
    with trio.fail_after(30), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim, trio.open_nursery() as nursery:
            end = await daemon.accept()
            nursery.start_soon(end.ended)  # reads and settles nothing
            taken = 0
            portion = (b"y" * 1000 + b"\n") * 60
            while taken < 64 * MIB:
                with trio.move_on_after(STILL_SECONDS) as patience:
                    await shim.stdin.send_all(portion)
                    taken += len(portion)
                if patience.cancelled_caught:
                    break
            assert taken < MAX_UNSETTLED_BYTES + 4 * MIB
            nursery.cancel_scope.cancel()


async def fill(end: ShimEnd, frame: bytes, most: int) -> int:
    """Send frames until the shim takes no more, and return how many bytes it took."""
    taken = 0
    while taken < most:
        with trio.move_on_after(STILL_SECONDS) as patience:
            unsent = memoryview(frame)
            while unsent:
                count = await end.socket.send(unsent)
                taken += count
                unsent = unsent[count:]
        if patience.cancelled_caught:
            break
    return taken


@pytest.mark.requirement("P2", "P7")
async def test_a_broken_connection_does_not_cost_what_the_client_has_yet_to_read(data_dir: Path) -> None:
    """P2: an answer that was delivered is the shim's to hand on, whatever becomes of the daemon."""
    big = b"z" * (3 * MIB)
    with trio.fail_after(30), fake_daemon(data_dir) as daemon:
        await daemon.listen()
        async with shim_process(data_dir) as shim:
            first = await daemon.accept()
            await shim.say(b"get")
            await first.forward()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first.deliver, big, 1)
                assert await shim.stdout.next() == big
            await shim.say(b"get again")
            await first.forward()
            await first.deliver(big, 2)
            first.hang_up()
            second = Lines(shim.process.stdout)  # type: ignore[arg-type]
            assert await second.next() == big
            await (await daemon.accept()).deliver(b"and more", None)
            assert await second.next() == b"and more"
