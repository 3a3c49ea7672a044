"""Ring 4: what a client sees of a daemon that hangs, dies in mid-call, dies twenty times, or stays away."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpstated.connection import open_client
from mcpstated.daemon.failpoints import VARIABLE
from mcpstated.protocol.paths import Paths
from support.forked_daemons import ForkedDaemon, forked_daemon
from support.mcp_client import McpClient, mcp_client
from support.shim_process import shim_environment
from support.standstill import until_it_stands_still


class Call:
    """A call under way."""

    def __init__(self, nursery: trio.Nursery, client: McpClient, tool: str, **arguments: Any) -> None:
        self._reply: dict[str, Any] = {}
        self._ended = trio.Event()
        nursery.start_soon(self._run, client, tool, arguments)

    async def _run(self, client: McpClient, tool: str, arguments: dict[str, Any]) -> None:
        self._reply = await client.tool(tool, **arguments)
        self._ended.set()

    async def reply(self) -> dict[str, Any]:
        """Return what it was answered."""
        await self._ended.wait()
        return self._reply


def appending(value: object) -> list[dict[str, Any]]:
    """Return the operations that append a value."""
    return [{"op": "append", "path": "l", "value": value}]


@pytest.mark.requirement("C01", "P1", "P2")
@pytest.mark.parametrize(
    "moment", ["write.before_submit=stop@1", "append.after_commit=stop@2", "commit.batch_settled=stop@2"]
)
async def test_an_append_is_answered_and_there_once_though_its_daemon_hung_and_was_killed(
    data_dir: Path, moment: str
) -> None:
    """P2: before it was stored, after that, and with the answer in hand: the next daemon knows which."""
    with trio.fail_after(60), forked_daemon(data_dir, **{VARIABLE: moment}) as first:
        assert await first.serves()
        async with (
            mcp_client(data_dir, environ=shim_environment(data_dir)) as client,
            trio.open_nursery() as nursery,
        ):
            handle = (await client.tool("state_save", kind="hung", state={"l": []}))["handle"]
            append = Call(nursery, client, "state_patch", handle=handle, ops=appending("x"))
            await until_it_stands_still(first.pid)
            first.kill()
            with forked_daemon(data_dir):
                reply = await append.reply()
                loaded = await client.tool("state_load", handle=handle)

    assert (reply["ok"], reply["version"]) == (True, 2)
    assert (loaded["state"], loaded["version"]) == ({"l": ["x"]}, 2)


@pytest.mark.requirement("C01", "P2")
async def test_a_program_gets_the_answer_that_its_daemon_died_with(data_dir: Path) -> None:
    """P2: a save that is sent again and was stored is answered as it was, and not called stale."""
    paths = Paths(str(data_dir))
    environ = shim_environment(data_dir)
    with trio.fail_after(60), forked_daemon(data_dir, **{VARIABLE: "session.before_reply=kill@2"}) as first:
        assert await first.serves()
        async with (
            open_client(paths, role="library", environ=environ, start=True) as client,
            trio.open_nursery() as nursery,
        ):
            handle = (await client.mint("program", {"n": 1})).info.handle
            nursery.start_soon(_follow, first, data_dir)
            saved = await client.save(handle, {"n": 2}, expect_version=1)
            loaded = await client.load(handle)
            assert client.welcome.pid != first.pid
            nursery.cancel_scope.cancel()

    assert saved.info.version == 2
    assert (loaded.info.version, loaded.state) == (2, {"n": 2})


async def _follow(first: ForkedDaemon, data_dir: Path) -> None:
    """Be the next daemon once the first is dead."""
    assert await first.exit_code() == -signal.SIGKILL
    with forked_daemon(data_dir):
        await trio.sleep_forever()


@pytest.mark.once
@pytest.mark.requirement("C02", "P2")
async def test_one_shim_goes_on_over_twenty_daemons_that_were_killed(data_dir: Path) -> None:
    """The client shook hands once; each next call finds the next daemon, and no failure is remembered."""
    values = list(range(20))
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            with forked_daemon(data_dir):
                client = await nursery.start(_hold_client, data_dir)
                handle = (await client.tool("state_save", kind="killed", state={"l": []}))["handle"]
            for value in values:
                append = Call(nursery, client, "state_patch", handle=handle, ops=appending(value))
                with forked_daemon(data_dir):
                    assert (await append.reply())["ok"]
            with forked_daemon(data_dir):
                loaded = await client.tool("state_load", handle=handle)
            nursery.cancel_scope.cancel()

    assert (loaded["state"], loaded["version"]) == ({"l": values}, 1 + len(values))


async def _hold_client(data_dir: Path, *, task_status: trio.TaskStatus[McpClient]) -> None:
    async with mcp_client(data_dir, environ=shim_environment(data_dir)) as client:
        task_status.started(client)
        await trio.sleep_forever()


@pytest.mark.once
@pytest.mark.requirement("C01", "C02", "P2", "P6")
async def test_where_no_daemon_comes_the_error_says_what_is_known_and_the_next_call_works(
    data_dir: Path,
) -> None:
    """P2: a write that was sent may be stored, so it is called unknown; one that was not is called undone."""
    environ = shim_environment(data_dir)
    with trio.fail_after(90), forked_daemon(data_dir, **{VARIABLE: "append.after_commit=kill@2"}) as first:
        assert await first.serves()
        async with (
            mcp_client(data_dir, environ=environ) as client,
            mcp_client(data_dir, environ=environ) as other,
            trio.open_nursery() as nursery,
        ):
            handle = (await client.tool("state_save", kind="away", state={"l": []}))["handle"]
            sent = Call(nursery, client, "state_patch", handle=handle, ops=appending("sent"))
            await first.exit_code()
            unsent = Call(nursery, other, "state_patch", handle=handle, ops=appending("unsent"))
            assert (await sent.reply())["error"]["code"] == "outcome_unknown"
            assert (await unsent.reply())["error"]["code"] == "daemon_unavailable"
            with forked_daemon(data_dir) as second:
                assert await second.serves()
                for each in (client, other):
                    assert (await each.append(handle, "next"))["ok"]
                loaded = await client.tool("state_load", handle=handle)

    assert loaded["state"] == {"l": ["sent", "next", "next"]}
