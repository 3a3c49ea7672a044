"""Programs and daemons of protocol versions 1 and 2 beside each other, in frames written by hand.

The frames are those of the releases that spoke only version 1: a request has three fields, and only a shim
says in its hello who it is.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpstated.connection import open_client
from mcpstated.protocol.errors import OutcomeUnknown
from mcpstated.protocol.patches import Append
from mcpstated.protocol.paths import Paths
from support.daemons import daemon_in
from support.raw_frames import Frames, dialled
from support.wire import client_at


@pytest.mark.requirement("P2")
@pytest.mark.parametrize("role", ["library", "cli"])
async def test_a_program_of_version_1_goes_on_working(tmp_path: Path, role: str) -> None:
    """An installation that was not upgraded still speaks to the daemon that was."""
    with trio.fail_after(60):
        async with daemon_in(tmp_path) as daemon:
            async with dialled(daemon.socket, 1, 1, [], role, "0.1.0", b"", "", "w", 42) as frames:
                welcome = await frames.receive()
                assert welcome is not None
                assert welcome[:2] == ["welcome", 1]
                await frames.send("request", 7, "mint", {"kind": "a", "state": '{"l":[]}'})
                answer = await frames.receive()
                assert answer is not None
                assert answer[:2] == ["response", 7]
                handle = answer[2]["info"]["handle"]
                await frames.send(
                    "request",
                    8,
                    "patch",
                    {"handle": handle, "ops": '[{"op":"append","path":"l","value":1}]'},
                )
                answer = await frames.receive()
                assert answer is not None
                assert answer[2]["info"]["version"] == 2
                await frames.send("request", 8, "status", {}, False, 0)
                assert (await frames.receive() or [])[:2] == ["goodbye", "protocol_error"]
            async with client_at(daemon.socket) as client:
                assert (await client.request("load", handle=handle))["state"] == '{"l":[1]}'


@pytest.mark.requirement("P2")
async def test_a_request_of_version_2_that_comes_again_is_applied_once(tmp_path: Path) -> None:
    """The numbers of the frame are what the ledger goes by, over connections and users of one id."""
    me: tuple[Any, ...] = (1, 2, [], "library", "0.2.0", b"i" * 16, "", "w", 42)
    append = '[{"op":"append","path":"l","value":1}]'
    with trio.fail_after(60):
        async with daemon_in(tmp_path) as daemon:
            async with dialled(daemon.socket, *me) as frames:
                assert (await frames.receive() or [])[:2] == ["welcome", 2]
                await frames.send("request", 1, "mint", {"kind": "a", "state": '{"l":[]}'}, False, 1)
                minted = await frames.receive()
                assert minted is not None
                handle = minted[2]["info"]["handle"]
                await frames.send("request", 2, "patch", {"handle": handle, "ops": append}, False, 2)
                first = await frames.receive()
            async with dialled(daemon.socket, *me) as frames:
                await frames.receive()
                await frames.send("request", 2, "patch", {"handle": handle, "ops": append}, True, 2)
                assert await frames.receive() == first
                await frames.send("request", 3, "patch", {"handle": handle, "ops": append}, False, 3)
                third = await frames.receive()
                assert third is not None
                assert third[2]["info"]["version"] == 3
                await frames.send("request", 0, "status", {}, False, 0)
                assert (await frames.receive() or [])[:2] == ["goodbye", "protocol_error"]
            other = (*me[:5], b"j" * 16, *me[6:])
            async with dialled(daemon.socket, *other) as frames:
                await frames.receive()
                await frames.send("request", 2, "patch", {"handle": handle, "ops": append}, True, 2)
                answer = await frames.receive()
                assert answer is not None
                assert answer[2]["info"]["version"] == 4


@pytest.mark.requirement("P2")
async def test_nothing_is_read_any_more_from_a_peer_that_has_come_back(tmp_path: Path) -> None:
    """P2: what is found in the older connection after its number was forgotten would count twice."""
    me: tuple[Any, ...] = (1, 2, [], "library", "0.2.0", b"i" * 16, "", "w", 42)
    append = '[{"op":"append","path":"l","value":1}]'
    with trio.fail_after(60):
        async with daemon_in(tmp_path) as daemon:
            async with client_at(daemon.socket) as client:
                handle = (await client.request("mint", kind="a", state='{"l":[]}'))["info"]["handle"]
            patch = {"handle": handle, "ops": append}
            async with dialled(daemon.socket, *me) as older, dialled(daemon.socket, *me) as newer:
                await older.receive()
                await newer.receive()
                for number in (2, 3):  # the second forgets the row of the first
                    await newer.send("request", number, "patch", patch, False, number)
                    assert (await newer.receive() or [])[0] == "response"
                with contextlib.suppress(OSError):
                    await older.send("request", 2, "patch", patch, False, 2)
                    assert await older.receive() is None
            async with client_at(daemon.socket) as client:
                assert (await client.request("load", handle=handle))["state"] == '{"l":[1,1]}'


class OldDaemon:
    """Answers as a daemon of version 1 did; each connection is one run of `conversation`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.hellos: list[list[Any]] = []
        self.requests: list[list[Any]] = []
        self.dies_of = ""

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.socket.socket(trio.socket.AF_UNIX) as listening:
            await listening.bind(self.path)
            listening.listen(16)
            task_status.started()
            while True:
                accepted, _ = await listening.accept()
                with accepted:
                    await self._converse(Frames(accepted))

    async def _converse(self, frames: Frames) -> None:
        hello = await frames.receive()
        assert hello is not None
        self.hellos.append(hello)
        assert len(hello) == 10
        if len(hello[6]) != (16 if hello[4] == "shim" else 0):
            await frames.send("goodbye", "protocol_error", "hello.shim_id has the wrong length for its role")
            return
        await frames.send("welcome", 1, ["list"], "0.1.0", "old", os.getpid(), {"max_frame_bytes": 1 << 24})
        while (request := await frames.receive()) is not None:
            self.requests.append(request)
            if request[2] == self.dies_of:
                self.dies_of = ""
                return
            await frames.send("response", request[1], {"handles": [], "total": 0, "next_cursor": None})


@pytest.mark.requirement("P2")
async def test_a_daemon_of_version_1_is_spoken_to_as_it_wants(tmp_path: Path) -> None:
    """It refuses an id that is not a shim's, so it gets a second hello without one, and short requests."""
    paths = Paths(str(tmp_path))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            old = OldDaemon(paths.socket)
            await nursery.start(old.serve)
            async with open_client(paths, role="library", environ={}, start=False) as client:
                assert (await client.list()).total == 0
                old.dies_of = "list"
                assert (await client.list()).total == 0
                old.dies_of = "patch"
                with pytest.raises(OutcomeUnknown):
                    await client.patch("a_1", [Append("l", 1)])
                assert (await client.list()).total == 0
            nursery.cancel_scope.cancel()
    assert [(hello[1], hello[2], len(hello[6])) for hello in old.hellos[:2]] == [(1, 2, 16), (1, 1, 0)]
    assert all(len(request) == 4 for request in old.requests)
    assert [request[2] for request in old.requests] == ["list", "list", "list", "patch", "list"]
