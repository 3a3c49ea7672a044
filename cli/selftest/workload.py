"""What the clients do: everything that agents do to states, at the same time and on the same few handles."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from random import Random
from typing import Any

import trio

from mcpstated.cli.selftest.checker import ITEMS
from mcpstated.cli.selftest.client import ShimClient
from mcpstated.cli.selftest.history import Call, Fields, Operation
from mcpstated.cli.selftest.shared import Pool, SharedHandle
from mcpstated.cli.selftest.tally import Tally

KIND = "selftest"
MARKS = "marks"
_MAX_BYTES = 1_000_000
_DELETE_CHANCE = 0.5
_TOOLS: dict[Operation, str] = {
    "mint": "state_save",
    "save": "state_save",
    "patch": "state_patch",
    "touch": "state_touch",
    "delete": "state_delete",
    "load": "state_load",
}
_ACTIONS = ("append", "append_and_mark", "mark", "load", "load_part", "save", "touch")
_WEIGHTS = (30, 15, 10, 20, 5, 15, 5)


class Workload:
    """The lanes of all clients; a lane makes one call after the other."""

    def __init__(self, tally: Tally, retired: trio.MemorySendChannel[SharedHandle], random: Random) -> None:
        self.mints: list[Call] = []
        self._tally = tally
        self._retired = retired
        self._random = random
        self._pool = Pool(random)
        self._names = itertools.count(1)
        self._is_ending = False

    def end(self) -> None:
        """Let each lane finish its call and leave."""
        self._is_ending = True

    async def lane(self, client: ShimClient) -> None:
        """Work until `end`."""
        while not self._is_ending:
            with self._pool.place() as is_free:
                if is_free:
                    await self._mint(client)
                    continue
            shared = self._pool.pick()
            if shared is None:
                await trio.sleep(0.01)  # another lane is just minting
                continue
            with shared.in_use():
                await self._act(client, shared)
            if shared.newest >= shared.last_version and not shared.is_ending:
                shared.is_ending = True
                await self._end(client, shared)

    async def hand_over(self) -> None:
        """Retire what is left, once all lanes have ended."""
        for shared in self._pool.end_all():
            await self._retired.send(shared)

    async def _mint(self, client: ShimClient) -> None:
        title = f"{KIND} {next(self._names)}"
        arguments = {"kind": KIND, "title": title, "state": {ITEMS: [], MARKS: {}, "saves": 0}}
        mint = await self._call(client, "mint", arguments)
        self.mints.append(mint)
        if mint.is_done:
            self._pool.add(mint)

    async def _end(self, client: ShimClient, shared: SharedHandle) -> None:
        deletes = self._random.random() < _DELETE_CHANCE
        if deletes:
            with shared.in_use():
                await self._on(client, shared, "delete")
        for retired in self._pool.end(shared, lingers=deletes):
            await self._retired.send(retired)

    async def _act(self, client: ShimClient, shared: SharedHandle) -> None:
        name = f"{client.name}-{next(self._names)}"
        append = {"op": "append", "path": ITEMS, "value": name}
        mark = {"op": "set_key", "path": MARKS, "key": client.name, "value": name}
        match self._random.choices(_ACTIONS, _WEIGHTS)[0]:
            case "append":
                answers = self._random.random() < 0.1
                await self._on(client, shared, "patch", ops=[append], return_state=answers)
            case "append_and_mark":
                await self._on(client, shared, "patch", ops=[append, mark])
            case "mark":
                await self._on(client, shared, "patch", ops=[mark])
            case "load":
                await self._on(client, shared, "load", max_bytes=_MAX_BYTES)
            case "load_part":
                path = self._random.choice((ITEMS, MARKS))
                await self._on(client, shared, "load", path=path, max_bytes=_MAX_BYTES)
            case "save":
                await self._save(client, shared, name)
            case "touch":
                await self._on(client, shared, "touch", ttl_days=self._random.uniform(1, 1_000))

    async def _save(self, client: ShimClient, shared: SharedHandle, name: str) -> None:
        """Read, change and write the whole document; on a conflict once more, from what that says."""
        seen = (await self._on(client, shared, "load", max_bytes=_MAX_BYTES)).fields
        for _ in range(2):
            if "state" not in seen:
                return
            state = {**seen["state"], "saves": seen["state"]["saves"] + 1, "saved": name}
            more: dict[str, Any] = {"title": name} if self._random.random() < 0.2 else {}
            saved = await self._on(
                client, shared, "save", state=state, expect_version=seen["version"], **more
            )
            if saved.is_done:
                return
            seen = saved.fields

    async def _on(
        self, client: ShimClient, shared: SharedHandle, operation: Operation, **arguments: Any
    ) -> Call:
        call = await self._call(client, operation, {"handle": shared.name, **arguments})
        shared.add(call)
        return call

    async def _call(self, client: ShimClient, operation: Operation, arguments: Fields) -> Call:
        answer = await client.call(_TOOLS[operation], arguments)
        handle = arguments.get("handle") or (answer.reply or {}).get("handle", "")
        call = Call(client.name, operation, handle, arguments, answer.started, answer.ended, answer.reply)
        if call.is_unknown:
            call = replace(call, ended=math.inf)
        self._tally.add_call(call)
        return call
