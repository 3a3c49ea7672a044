"""Writers that append unique values over real shims while something happens to the daemon.

Each value goes to one handle once, so that afterwards the handle itself tells what was lost or done twice.
A writer makes one call after the other: it appends to handles that all share, appends to one of its own,
and now and then loads its own and saves it whole with the version that it read.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import trio

from mcpstated.connection import DaemonClient, open_client
from mcpstated.launch import DaemonNotRunning
from mcpstated.protocol.errors import McpStateError
from mcpstated.protocol.patches import Append
from mcpstated.protocol.paths import Paths
from support.mcp_client import McpClient, mcp_client, starting_environment

SHARED_HANDLES = 3
SHARED, OWN = "shared", "own"
"""The kinds of the handles that are written to; nobody else may make handles of these kinds."""
MAX_BYTES = 2_000_000
"""Lets a load answer with the whole document, however large."""
T = TypeVar("T")


@dataclass(slots=True)
class Written:
    """One call, from when it was sent."""

    writer: str
    what: str
    handle: str | None
    value: str | None
    """What a write adds to the list of its handle; None for a new handle and for a read."""
    started: float
    """On trio's clock, as `ended`."""
    ended: float | None = None
    error: str | None = None

    @property
    def is_acknowledged(self) -> bool:
        """True if it was answered, and not with an error."""
        return self.ended is not None and self.error is None


class Workload:
    """Any number of writers over one store.

    Args:
        writers: Over how many shims is written.
        programs: How many more writers use the connection that programs use.
        environ: What the shims are started with; by default they may start a daemon.
        pause_seconds: How long a writer may do nothing between two calls, at most.
        seed: Decides about the pauses and the handles.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        writers: int,
        programs: int = 0,
        environ: Mapping[str, str] | None = None,
        pause_seconds: float = 0.02,
        seed: int = 0,
    ) -> None:
        self.data_dir = data_dir
        self.environ = dict(environ) if environ is not None else starting_environment(data_dir)
        self.calls: list[Written] = []
        self.handles: dict[str, str] = {}
        """The handles that were answered, and their kinds."""
        self._names = [f"w{number}" for number in range(writers)]
        self._programs = [f"p{number}" for number in range(programs)]
        self._pause_seconds = pause_seconds
        self._random = random.Random(seed)
        self._shared: list[str] = []
        self._is_prepared = trio.Event()
        self._is_stopping = trio.Event()
        self._answers = dict.fromkeys([*self._names, *self._programs], 0)
        self._answered = trio.Event()

    async def run(self) -> None:
        """Write until `stop`; what is under way then is answered first."""
        async with trio.open_nursery() as nursery:
            for name in self._names:
                nursery.start_soon(self._write_over_shim, name)
            for name in self._programs:
                nursery.start_soon(self._write_as_program, name)

    def stop(self) -> None:
        """Let every writer end after its call."""
        self._is_stopping.set()

    async def everybody_answered(self) -> None:
        """Return when each writer has got one more answer than now."""
        before = dict(self._answers)
        while any(self._answers[name] <= count for name, count in before.items()):
            await self._answered.wait()

    async def _write_over_shim(self, name: str) -> None:
        async with mcp_client(self.data_dir, environ=self.environ, name=name) as client:
            writer = _ShimWriter(client)
            if name == self._names[0]:
                while len(self._shared) < SHARED_HANDLES:
                    self._shared.append(await self._mint(writer, name, SHARED))
                self._is_prepared.set()
            await self._write(writer, name)

    async def _write_as_program(self, name: str) -> None:
        await self._is_prepared.wait()
        paths = Paths(str(self.data_dir))
        while True:
            try:
                async with open_client(paths, role="library", environ=self.environ, start=True) as client:
                    await self._write(_ProgramWriter(client), name)
            except DaemonNotRunning:
                await trio.sleep(0.02)
            else:
                return

    async def _write(self, writer: _ShimWriter | _ProgramWriter, name: str) -> None:
        own = await self._mint(writer, name, OWN)
        await self._is_prepared.wait()
        number = 0
        while not self._is_stopping.is_set():
            number += 1
            value = f"{name}-{number}"
            if number % 5 == 0:
                await self._save(writer, name, own, value)
            else:
                handle = own if number % 5 == 1 else self._random.choice(self._shared)
                await self._call(name, "append", writer.append(handle, value), handle, value)
            with trio.move_on_after(self._random.uniform(0, self._pause_seconds)):
                await self._is_stopping.wait()

    async def _mint(self, writer: _ShimWriter | _ProgramWriter, name: str, kind: str) -> str:
        while (handle := await self._call(name, "mint", writer.mint(kind))) is None:
            pass
        self.handles[handle] = kind
        return handle

    async def _save(self, writer: _ShimWriter | _ProgramWriter, name: str, handle: str, value: str) -> None:
        """Load and save; nobody else writes to that handle, so its version must still be the newest."""
        loaded = await self._call(name, "load", writer.load(handle), handle)
        if loaded is not None:
            values, version = loaded
            await self._call(name, "save", writer.save(handle, [*values, value], version), handle, value)

    async def _call(
        self, name: str, what: str, work: Awaitable[T], handle: str | None = None, value: str | None = None
    ) -> T | None:
        """Make one call and record it; None if it was answered with an error."""
        call = Written(name, what, handle, value, trio.current_time())
        self.calls.append(call)
        result = None
        try:
            result = await work
        except (CallFailed, McpStateError) as error:
            call.error = str(error)
        call.ended = trio.current_time()
        self._answers[name] += 1
        self._answered.set()
        self._answered = trio.Event()
        return result


class CallFailed(Exception):
    """A tool call was answered with an error."""


class _ShimWriter:
    def __init__(self, client: McpClient) -> None:
        self._client = client

    async def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = await self._client.ask("tools/call", {"name": tool, "arguments": arguments})
        content: dict[str, Any] = answer.get("result", {}).get("structuredContent", {})
        if not content.get("ok"):
            raise CallFailed(str(answer))
        return content

    async def mint(self, kind: str) -> str:
        return str((await self._call("state_save", kind=kind, state={"l": []}))["handle"])

    async def append(self, handle: str, value: str) -> None:
        operation = {"op": "append", "path": "l", "value": value}
        await self._call("state_patch", handle=handle, ops=[operation])

    async def load(self, handle: str) -> tuple[list[str], int]:
        loaded = await self._call("state_load", handle=handle, max_bytes=MAX_BYTES)
        return loaded["state"]["l"], loaded["version"]

    async def save(self, handle: str, values: list[str], version: int) -> None:
        await self._call("state_save", handle=handle, state={"l": values}, expect_version=version)


class _ProgramWriter:
    def __init__(self, client: DaemonClient) -> None:
        self._client = client

    async def mint(self, kind: str) -> str:
        return str((await self._client.mint(kind, {"l": []})).info.handle)

    async def append(self, handle: str, value: str) -> None:
        await self._client.patch(handle, [Append("l", value)])

    async def load(self, handle: str) -> tuple[list[str], int]:
        loaded = await self._client.load(handle)
        state: Any = loaded.state
        return state["l"], loaded.info.version

    async def save(self, handle: str, values: list[str], version: int) -> None:
        document: dict[str, Any] = {"l": values}
        await self._client.save(handle, document, expect_version=version)
