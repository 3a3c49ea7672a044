"""Two installations beside each other, in frames as the release that spoke only version 1 wrote them.

`tests/long/skew.py` does the same with the processes of that release.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpstated.protocol.messages import PROTOCOL_MAX, PROTOCOL_MIN
from mcpstated.protocol.paths import Paths
from mcpstated.protocol.version import VERSION
from support.daemons import daemon_in
from support.raw_frames import Frames, dialled, listening
from support.shim_process import ShimProcess, shim_process
from support.wire import client_at

SHIM_ID = b"a shim of 0.1.0!"
FRESH, KEPT, RESENT = 0, 1, 2
LIMITS = {"max_frame_bytes": 1 << 24}
INITIALIZE = {
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "Old Client", "version": "1"},
    },
}
REMEDY = "Run `mcpstated restart` with the newer installation."


def line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def call(id_: int, name: str, **arguments: Any) -> bytes:
    return line(id=id_, method="tools/call", params={"name": name, "arguments": arguments})


async def delivered(frames: Frames, seq: int) -> tuple[dict[str, Any], bool]:
    """Return the answer to a line, parsed, and whether the line must be kept."""
    message = await frames.receive()
    assert message is not None
    assert (message[0], len(message), message[2]) == ("deliver", 4, seq), message
    return json.loads(message[1]), message[3]


async def said_hello(accepted: trio.socket.SocketType, *, protocol: int) -> tuple[Frames, list[Any]]:
    """Take a hello as a daemon that speaks one version, and welcome it."""
    frames = Frames(accepted)
    hello = await frames.receive()
    assert hello is not None
    assert (hello[0], len(hello)) == ("hello", 10)
    await frames.send("welcome", protocol, ["list"], "0.1.0", "old", os.getpid(), LIMITS)
    return frames, hello


@pytest.mark.requirement("P2")
async def test_a_shim_of_version_1_goes_on_with_this_daemon_and_with_the_next(data_dir: Path) -> None:
    """An upgrade leaves the shims of the clients that run; what they send again counts once."""
    me: tuple[Any, ...] = (1, 1, [], "shim", "0.1.0", SHIM_ID, "", "w", 42)
    with trio.fail_after(60):
        async with daemon_in(data_dir) as daemon, dialled(daemon.socket, *me) as frames:
            welcome = await frames.receive()
            assert welcome is not None
            assert (welcome[0], welcome[1], len(welcome)) == ("welcome", 1, 7)
            await frames.send("forward", 1, FRESH, 1, line(**INITIALIZE))
            answer, is_kept = await delivered(frames, 1)
            assert (answer["result"]["serverInfo"]["name"], is_kept) == ("mcpstated", True)
            await frames.send("forward", 2, FRESH, 2, line(method="notifications/initialized"))
            assert await frames.receive() == ["settled", 2, True]
            await frames.send("forward", 3, FRESH, 3, call(1, "state_save", kind="a", state={"l": []}))
            handle = (await delivered(frames, 3))[0]["result"]["structuredContent"]["handle"]
            append = call(2, "state_patch", handle=handle, ops=[{"op": "append", "path": "l", "value": 1}])
            await frames.send("forward", 4, FRESH, 4, append)
            first = await delivered(frames, 4)
        async with daemon_in(data_dir) as daemon, dialled(daemon.socket, *me) as frames:
            assert (await frames.receive() or [])[:2] == ["welcome", 1]
            await frames.send("forward", 1, KEPT, 4, line(**INITIALIZE))
            await frames.send("forward", 2, KEPT, 4, line(method="notifications/initialized"))
            await frames.send("forward", 4, RESENT, 4, append)
            while (message := await frames.receive() or [])[0] == "settled":
                assert message[1] in (1, 2)
            assert (message[0], json.loads(message[1]), *message[2:]) == ("deliver", first[0], 4, first[1])
            async with client_at(daemon.socket) as client:
                assert (await client.request("load", handle=handle))["state"] == '{"l":[1]}'


async def converse(shim: ShimProcess, frames: Frames) -> None:
    """Let a client say hello and call once, and answer only the first as a daemon of version 1 does."""
    await shim.say(line(**INITIALIZE), line(method="notifications/initialized"), call(1, "state_list"))
    for seq in (1, 2, 3):
        message = await frames.receive()
        assert message is not None
        assert (message[:3], len(message)) == (["forward", seq, FRESH], 5)
    await frames.send("deliver", line(id=0, result={}), 1, True)
    await frames.send("settled", 2, True)
    assert (await shim.answer())["id"] == 0


@pytest.mark.requirement("P2")
@pytest.mark.parametrize("goodbye", ["stopping", "upgrading", None])
async def test_this_shim_serves_its_client_with_a_daemon_of_version_1(
    data_dir: Path, goodbye: str | None
) -> None:
    """It runs on until somebody replaces it; then its lines go to the next one, of any version."""
    path = Paths(str(data_dir)).socket
    with trio.fail_after(60):
        async with shim_process(data_dir) as shim:
            async with listening(path) as listener:
                accepted, _ = await listener.accept()
                with accepted:
                    frames, first = await said_hello(accepted, protocol=1)
                    assert (first[1] <= 1, first[4], len(first[6])) == (True, "shim", 16)
                    await converse(shim, frames)
                    if goodbye is not None:
                        await frames.send("goodbye", goodbye, "The daemon makes way for another one.")
            async with listening(path) as listener:
                accepted, _ = await listener.accept()
                with accepted:
                    frames, hello = await said_hello(accepted, protocol=PROTOCOL_MAX)
                    assert hello[6] == first[6]
                    modes = [(await frames.receive() or [])[1:3] for _ in range(3)]
                    assert modes == [[1, KEPT], [2, KEPT], [3, RESENT]]
                    await frames.send("deliver", line(id=1, result={"from": "the new one"}), 3, False, 0)
                    assert (await shim.answer())["result"] == {"from": "the new one"}


@pytest.mark.requirement("P2")
@pytest.mark.parametrize(("role", "client_id"), [("shim", SHIM_ID), ("library", SHIM_ID), ("cli", b"")])
async def test_this_daemon_tells_a_client_of_the_future_what_to_do(
    data_dir: Path, role: str, client_id: bytes
) -> None:
    """No version in common: the sentence names both sides and the command that fixes it."""
    future = PROTOCOL_MAX + 1
    hello = (future, future + 1, ["time travel"], role, "9.8.7", client_id, "", "w", 42)
    with trio.fail_after(30):
        async with daemon_in(data_dir) as daemon, dialled(daemon.socket, *hello) as frames:
            goodbye = await frames.receive()
            assert goodbye is not None
            assert goodbye[:2] == ["goodbye", "version_skew"]
            for part in (
                f"(9.8.7) speaks protocol {future} to {future + 1}",
                f"({VERSION}) {PROTOCOL_MIN} to {PROTOCOL_MAX}",
                REMEDY,
            ):
                assert part in goodbye[2]
            assert await frames.receive() is None


@pytest.mark.requirement("P2")
async def test_a_daemon_of_the_future_fails_each_call_with_what_to_do(data_dir: Path) -> None:
    """The client's model reads it, and so does whoever runs a command; neither waits for a timeout."""
    future = PROTOCOL_MAX + 1
    parts = (f"({VERSION})", f"{PROTOCOL_MIN} to {PROTOCOL_MAX}", f"(9.8.7) {future}", REMEDY)
    async with trio.open_nursery() as nursery:

        async def serve(listener: trio.socket.SocketType) -> None:
            while True:
                accepted, _ = await listener.accept()
                with accepted:
                    frames = Frames(accepted)
                    await frames.receive()
                    await frames.send("welcome", future, [], "9.8.7", "new", os.getpid(), LIMITS)
                    await frames.receive()

        with trio.fail_after(30):
            async with listening(Paths(str(data_dir)).socket) as listener:
                nursery.start_soon(serve, listener)
                async with shim_process(data_dir) as shim:
                    await shim.say(call(1, "state_list"))
                    result = (await shim.answer())["result"]
                listed = await trio.run_process(
                    [sys.executable, "-m", "mcpstated.cli", "--data-dir", str(data_dir), "list", "--json"],
                    capture_stdout=True,
                    check=False,
                )
                nursery.cancel_scope.cancel()
    error = json.loads(listed.stdout)["errors"][0]
    assert (listed.returncode, error["code"]) == (4, "version_skew")
    assert result["isError"]
    for said in (result["content"][0]["text"], error["message"]):
        assert [part for part in parts if part not in said] == [], said
