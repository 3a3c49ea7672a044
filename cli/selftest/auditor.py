"""The last word on each handle: every version of it is read back, and its history is checked.

Reading back goes through a program's connection to the daemon, which can ask for older versions and bring a
deleted handle back; what it answers joins the history as more calls of one more client. Checked handles
are deleted, so that the store stays small however long this goes on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import trio

from mcpstated.cli.selftest.checker import check
from mcpstated.cli.selftest.history import Call, Fields, Operation, to_line
from mcpstated.cli.selftest.problems import Problem
from mcpstated.cli.selftest.shared import SharedHandle
from mcpstated.cli.selftest.tally import Tally
from mcpstated.connection import DaemonClient
from mcpstated.protocol.errors import DaemonUnavailable, HandleNotFound, McpStateError
from mcpstated.protocol.moments import moment
from mcpstated.protocol.store import HandleInfo

NAME = "auditor"
ATTEMPTS = 5
"""A machine that is very busy may need longer for a daemon than a program waits for one."""
_AT_ONCE = 4
_MOMENTS = ("created_at", "updated_at", "expires_at")


class Auditor:
    """Judges handles one after the other."""

    def __init__(self, client: DaemonClient, tally: Tally, history: Path) -> None:
        self._client = client
        self._tally = tally
        self._history = history
        """Where the calls on handles go with which something is wrong."""

    async def run(self, retired: trio.MemoryReceiveChannel[SharedHandle]) -> None:
        """Judge handles as they are retired, until there will be no more."""
        async for shared in retired:
            await shared.wait_idle()
            await self.judge(shared.calls)

    async def judge(self, calls: list[Call]) -> None:
        """Read a handle back, check its history, and delete it."""
        handle = calls[0].handle
        read = await self._read_back(handle)
        calls = [*calls, *read]
        problems = [*_unread(read), *await trio.to_thread.run_sync(check, calls)]
        self._tally.handles += 1
        self._tally.versions += max(call.version or 0 for call in calls)
        if problems:
            self._tally.add_problems(problems)
            self.keep(calls)
        if problem := await self._delete(handle):
            self._tally.add_problems([problem])

    async def leftovers(self, mints: Sequence[Call]) -> list[Problem]:
        """Return what is wrong with the list once every handle that is known is deleted.

        A mint whose outcome is unknown may have left one handle; nothing else may be there.
        """
        excused = {mint.arguments["title"]: mint for mint in mints if mint.is_unknown}
        problems: list[Problem] = []
        cursor: str | None = None
        while True:
            page = await self._client.list(cursor=cursor)
            for info in page.handles:
                if excused.pop(info.title or "", None) is None:
                    text = f'"{info.title}" was minted once too often, or came back'
                    problems.append(Problem("doubled", info.handle, text))
            cursor = page.next_cursor
            if cursor is None:
                return problems

    def keep(self, calls: Sequence[Call]) -> None:
        """Write calls to the file of those that are worth a look."""
        with self._history.open("a", encoding="utf-8") as stream:
            stream.writelines(f"{to_line(call)}\n" for call in sorted(calls, key=lambda call: call.started))

    async def _read_back(self, handle: str) -> list[Call]:
        newest = await self._load(handle)
        calls = [newest]
        if newest.code == HandleNotFound.code:
            undeleted = await self._call("undelete", {"handle": handle}, lambda: self._undelete(handle))
            newest = await self._load(handle)
            calls += [undeleted, newest]
        last, following = newest.version or 0, 1

        async def load_each() -> None:
            nonlocal following
            while following <= last:
                version, following = following, following + 1
                calls.append(await self._load(handle, version=version))

        async with trio.open_nursery() as nursery:
            for _ in range(_AT_ONCE):
                nursery.start_soon(load_each)
        return calls

    async def _load(self, handle: str, *, version: int | None = None) -> Call:
        async def load() -> Fields:
            loaded = await self._client.load(handle, version=version)
            return {**_metadata(loaded.info), "state": loaded.state}

        arguments: Fields = {"handle": handle} if version is None else {"handle": handle, "version": version}
        return await self._call("load", arguments, load)

    async def _undelete(self, handle: str) -> Fields:
        return _metadata((await self._client.undelete(handle)).info)

    async def _delete(self, handle: str) -> Problem | None:
        error: McpStateError | None = None
        for _ in range(ATTEMPTS):
            try:
                await self._client.delete(handle)
            except HandleNotFound:
                return None  # an attempt before had gone through
            except McpStateError as refusal:
                error = refusal
            else:
                return None
        return Problem("refused", handle, f"it could not be deleted: {error}")

    async def _call(
        self, operation: Operation, arguments: Fields, ask: Callable[[], Awaitable[Fields]]
    ) -> Call:
        """Ask, again while no daemon can be had, and return what came of it."""
        for _ in range(ATTEMPTS):
            started = time.monotonic()
            try:
                reply: Fields = {"ok": True, **await ask()}
            except McpStateError as error:
                reply = {"ok": False, "error": error.to_payload()}
            call = Call(NAME, operation, arguments["handle"], arguments, started, time.monotonic(), reply)
            if call.code != DaemonUnavailable.code:
                break
        return replace(call, ended=math.inf) if call.is_unknown else call


def _unread(calls: Sequence[Call]) -> list[Problem]:
    """Return what could not be read back: a history of which nothing is known afterwards proves nothing."""
    failed = [call for call in calls if not call.is_done and call.code != HandleNotFound.code]
    if not any(call.operation == "load" and call.is_done and not call.is_past for call in calls):
        failed.append(calls[-1])
    return [Problem("unread", call.handle, f"{call.words()} failed: {call.code}") for call in failed[:1]]


def _metadata(info: HandleInfo) -> Fields:
    """Return what a program is told of a version in the form in which an agent is told."""
    fields = {
        "handle": info.handle,
        "version": info.version,
        "kind": info.kind,
        **{name: moment(getattr(info, name)) for name in _MOMENTS},
        "last_writer": info.last_writer,
        "size_bytes": info.size_bytes,
    }
    return fields if info.title is None else {**fields, "title": info.title}
