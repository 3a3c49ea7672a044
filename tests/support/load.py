"""Clients that write all the time while something is done to their daemon, and what became of each call."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from mcpstated.connection import open_client
from mcpstated.protocol.errors import McpStateError
from mcpstated.protocol.patches import Append
from mcpstated.protocol.paths import Paths
from support.mcp_client import McpClient, mcp_client


@dataclass
class Load:
    """One handle that everybody appends to, and the account of it."""

    data_dir: Path
    handle: str = ""
    calls: int = 0
    failed: list[Any] = field(default_factory=list)
    """What came instead of a success."""
    slowest_seconds: float = 0.0
    acknowledged: list[str] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    """The version that each acknowledged call was answered with."""
    wrong: list[str] = field(default_factory=list)
    """What is wrong with what is stored, one sentence each; known once the load is over."""
    _is_over: bool = False
    _turns: dict[str, int] = field(default_factory=dict)
    _turned: trio.Event = field(default_factory=trio.Event)

    async def everybody_has_called(self, times: int) -> None:
        """Return when each client has been answered that many times from now on."""
        goals = {name: turns + times for name, turns in self._turns.items()}
        while any(self._turns[name] < goal for name, goal in goals.items()):
            await self._turned.wait()

    async def write_over_stdio(self, client: McpClient, name: str) -> None:
        """Append through a shim, one call after the other, until the load is over."""
        while not self._is_over:
            value = f"{name}-{self._turns[name]}"
            began = trio.current_time()
            reply = await client.append(self.handle, value)
            self._note(name, value, reply["version"] if reply["ok"] else None, began, reply)

    async def write_as_a_program(self, environ: Mapping[str, str], name: str) -> None:
        """Append over the library's connection until the load is over."""
        paths = Paths(str(self.data_dir))
        async with open_client(paths, role="library", environ=environ, start=True) as client:
            while not self._is_over:
                value = f"{name}-{self._turns[name]}"
                began = trio.current_time()
                version, failure = None, None
                try:
                    version = (await client.patch(self.handle, [Append("l", value)])).info.version
                except McpStateError as error:
                    failure = error.to_payload()
                self._note(name, value, version, began, failure)

    def _note(self, name: str, value: str, version: int | None, began: float, reply: object) -> None:
        self.calls += 1
        self.slowest_seconds = max(self.slowest_seconds, trio.current_time() - began)
        if version is None:
            self.failed.append(reply)
        else:
            self.acknowledged.append(value)
            self.versions.append(version)
        self._turns[name] += 1
        self._turned.set()
        self._turned = trio.Event()

    async def account(self, client: McpClient) -> list[str]:
        """Return what is wrong with what is stored, one sentence each."""
        final = await client.tool("state_load", handle=self.handle, max_bytes=1_000_000)
        stored = final["state"]["l"]
        wrong = [f"a call failed: {reply}" for reply in self.failed]
        if len(stored) != len(set(stored)):
            wrong.append(f"{len(stored) - len(set(stored))} values were stored twice")
        if lost := set(self.acknowledged) - set(stored):
            wrong.append(f"acknowledged and not stored: {sorted(lost)[:5]}")
        if unasked := set(stored) - set(self.acknowledged):
            wrong.append(f"stored and not acknowledged: {sorted(unasked)[:5]}")
        if sorted(self.versions) != [*range(2, len(self.versions) + 2)]:
            wrong.append("the versions that were answered are not dense")
        if final["version"] != 1 + len(stored):
            wrong.append(f"version {final['version']} after {len(stored)} appends")
        return wrong


@asynccontextmanager
async def load_on(
    data_dir: Path, *, shims: int, programs: int = 0, environ: Mapping[str, str]
) -> AsyncIterator[Load]:
    """Keep clients writing while the block runs; each has been answered once when it begins.

    A call that is under way when the block ends is waited for; then what is stored is looked at.

    Args:
        environ: Of the shims; says which installation they are, and whether they may start a daemon.
    """
    load = Load(data_dir)
    async with mcp_client(data_dir, environ=environ) as observer:
        load.handle = (await observer.tool("state_save", kind="load", state={"l": []}))["handle"]

        async def be_a_client(name: str, *, task_status: trio.TaskStatus[None]) -> None:
            async with mcp_client(data_dir, environ=environ, name=name) as client:
                load._turns[name] = 0
                task_status.started()
                await load.write_over_stdio(client, name)

        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as starting:
                for number in range(shims):
                    starting.start_soon(nursery.start, be_a_client, f"shim{number}")
            for number in range(programs):
                load._turns[f"program{number}"] = 0
                nursery.start_soon(load.write_as_a_program, {**os.environ, **environ}, f"program{number}")
            await load.everybody_has_called(1)
            yield load
            load._is_over = True
        load.wrong = await load.account(observer)
