"""Ring 4: an orderly stop while hundreds of calls are under way, one that is hurried, one in a migration."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.backends import schema
from mcpstated.daemon.failpoints import VARIABLE
from mcpstated.daemon.maintenance.verify import verify
from mcpstated.protocol.paths import Paths
from support.aftermath import read_log
from support.failpoint_scenes import lay_out_version_1
from support.forked_daemons import ForkedDaemon, forked_daemon
from support.mcp_client import McpClient, mcp_client
from support.shim_process import shim_environment
from support.standstill import until_it_stands_still

CLIENTS, EACH = 4, 125
EXIT_SECONDS = 30.0
"""An ending takes its grace of 5 s, and what a busy machine adds."""


class Pipeline:
    """A client that sends all its appends at once and then reads the answers."""

    def __init__(self, client: McpClient, name: str) -> None:
        self._client = client
        self._values = [f"{name}-{number}" for number in range(EACH)]
        self.acknowledged: list[str] = []

    async def send(self, handle: str) -> None:
        """Write every line."""
        for value in self._values:
            operation = {"op": "append", "path": "l", "value": value}
            params = {"name": "state_patch", "arguments": {"handle": handle, "ops": [operation]}}
            line = {"jsonrpc": "2.0", "id": value, "method": "tools/call", "params": params}
            await self._client.shim.say(json.dumps(line).encode())

    async def read(self) -> None:
        """Take every answer; none may be an error."""
        while len(self.acknowledged) < EACH:
            answer = await self._client.shim.answer()
            assert answer["result"]["structuredContent"]["ok"], answer
            self.acknowledged.append(answer["id"])


@pytest.mark.requirement("C12", "P1", "P2")
@pytest.mark.parametrize("signals", [1, 2])
async def test_a_stop_under_500_patches_keeps_what_was_acknowledged_and_the_shims_bring_the_rest(
    data_dir: Path, signals: int
) -> None:
    """P1: what was answered before the end is in the file; P2: the next daemon gets the rest, each once."""
    async with trio.open_nursery() as holding:
        with trio.fail_after(120), forked_daemon(data_dir) as first:
            assert await first.serves()
            clients = [await holding.start(_hold_client, data_dir) for _ in range(CLIENTS)]
            handle = (await clients[0].tool("state_save", kind="stopped", state={"l": []}))["handle"]
            pipelines = [Pipeline(client, f"c{number}") for number, client in enumerate(clients)]
            async with trio.open_nursery() as reading:
                for pipeline in pipelines:
                    reading.start_soon(pipeline.read)
                async with trio.open_nursery() as sending:
                    for pipeline in pipelines:
                        sending.start_soon(pipeline.send, handle)
                for _ in range(signals):
                    os.kill(first.pid, signal.SIGTERM)
                with trio.fail_after(EXIT_SECONDS):
                    assert await first.exit_code() == 0
                state, version = read_log(data_dir, handle)
                acknowledged = {value for pipeline in pipelines for value in pipeline.acknowledged}
                assert acknowledged <= set(state["l"])
                assert version == 1 + len(state["l"])
                second = await holding.start(_hold_daemon, data_dir)
            assert second.pid != first.pid
        holding.cancel_scope.cancel()

    state, version = read_log(data_dir, handle)
    assert Counter(state["l"]) == Counter(f"c{client}-{n}" for client in range(CLIENTS) for n in range(EACH))
    assert version == 1 + CLIENTS * EACH
    assert verify(Path(Paths(str(data_dir)).database)).problems == ()


async def _hold_client(data_dir: Path, *, task_status: trio.TaskStatus[McpClient]) -> None:
    async with mcp_client(data_dir, environ=shim_environment(data_dir)) as client:
        task_status.started(client)
        await trio.sleep_forever()


async def _hold_daemon(data_dir: Path, *, task_status: trio.TaskStatus[ForkedDaemon]) -> None:
    with forked_daemon(data_dir) as daemon:
        task_status.started(daemon)
        await trio.sleep_forever()


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "moment", ["migration.before_step", "migration.after_step", "migration.after_commit"]
)
async def test_a_stop_during_a_migration_leaves_the_old_schema_or_the_new_one(
    data_dir: Path, moment: str
) -> None:
    """Half of a migration would be a store that no version of the program knows."""
    lay_out_version_1(data_dir)
    path = Path(Paths(str(data_dir)).database)
    with trio.fail_after(60):
        with forked_daemon(data_dir, **{VARIABLE: f"{moment}=stop"}) as first:
            await until_it_stands_still(first.pid)
            os.kill(first.pid, signal.SIGTERM)
            os.kill(first.pid, signal.SIGCONT)
            with trio.fail_after(EXIT_SECONDS):
                assert await first.exit_code() in (0, -signal.SIGTERM)
        db = apsw.Connection(str(path))
        version = db.pragma("user_version")
        is_new = bool(db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'request_keys'").get)
        db.close()
        assert version == (schema.SCHEMA_VERSION if is_new else 1)
        with forked_daemon(data_dir) as second:
            assert await second.serves()
            async with mcp_client(data_dir, environ=shim_environment(data_dir)) as client:
                assert (await client.tool("state_save", kind="migrated", state={}))["ok"]
    assert verify(path).problems == ()
