"""Days of a busy user in simulated time, and the most that they may leave on the disk.

The engine, its sweeper and the files are real; only the clock is moved. A day is cut into slots: time
passes, the slot's writes are made at once, the sweeper does one pass. It would do more of them in reality.
docs/retention.md tells the same bounds in words.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw
import trio

from mcpstated.daemon.backends import compaction
from mcpstated.daemon.ledger import KEPT_SECONDS
from mcpstated.daemon.sweeper import FORGET_INTERVAL_SECONDS, SLACK
from mcpstated.daemon.testing import RunningEngine
from mcpstated.protocol.documents import Document
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append, Operation, SetKey
from mcpstated.protocol.request_keys import request_key
from mcpstated.protocol.store import Caller, CallToken, HandleId

DAY = 86_400
TEXT_BYTES = 100
"""What one patch sets or appends."""
RECORD_BYTES = TEXT_BYTES + 60
"""The record of such a change."""
ROW_BYTES = 400
"""The most that a row of the log takes beside its record, its index entry included."""
ANSWER_BYTES = 1_500
"""The most that an answer takes which is kept for a call that may come again."""
HANDLE_BYTES = 3_000
"""The most that a handle's own row and its index entries take."""
LOOSEST = 3
"""SQLite joins pages that are less than a third full."""
SHIMS = 10
"""How many clients there are; the first one was killed and never says that it has its answers."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What happens on every day."""

    handles: int
    patches: int
    slots: int
    """How often the sweeper runs."""
    passing: int
    """Handles that are made to last half a day."""
    deleted: int
    """Handles that are made and deleted."""

    @property
    def day_seconds(self) -> float:
        """What a call every so often takes part in: a day, the hour between two looks, one slot."""
        return KEPT_SECONDS + FORGET_INTERVAL_SECONDS + DAY / self.slots


@dataclass(frozen=True, slots=True)
class Figures:
    """What is on the disk."""

    database_bytes: int
    wal_bytes: int
    all_bytes: int
    """Everything in the directory."""
    rows: dict[str, int]


class BusyDays:
    """Lives through days with an engine whose sweeper runs only when told to."""

    def __init__(self, running: RunningEngine, path: Path, habits: Habits, limits: Limits) -> None:
        self._running = running
        self._path = path
        self._habits = habits
        self._limits = limits
        self._caller = Caller("alice", "laptop/claude-code")
        self._handles: list[HandleId] = []
        self._calls: Counter[int] = Counter()
        self._patched = 0
        self.largest_wal_bytes = 0
        """After any pass of the sweeper."""

    async def begin(self) -> None:
        """Make the handles that are patched."""
        for _ in range(self._habits.handles):
            receipt = await self._running.store.mint(self._caller, kind="task", document={"log": []})
            self._handles.append(receipt.info.handle)

    async def live_a_day(self) -> Figures:
        """Let a day pass and return what is on the disk in its evening."""
        habits = self._habits
        for slot in range(habits.slots):
            self._running.time.pass_seconds(DAY / habits.slots)
            async with trio.open_nursery() as nursery:
                for _ in range(_share(habits.patches, slot, habits.slots)):
                    nursery.start_soon(self._patch)
                for _ in range(_share(habits.passing, slot, habits.slots)):
                    nursery.start_soon(self._mint_passing)
                for _ in range(_share(habits.deleted, slot, habits.slots)):
                    nursery.start_soon(self._mint_and_delete)
            for shim in range(1, SHIMS):
                self._running.store.note_settled(_origin(shim), self._calls[shim] + 1)
            await self._running.store.sweep()
            self.largest_wal_bytes = max(self.largest_wal_bytes, _size(self._wal))
        return await self.look()

    async def look(self) -> Figures:
        """Return what is on the disk."""
        reader = self._running.backend._reader
        assert reader is not None
        return Figures(
            _size(self._path),
            _size(self._wal),
            sum(file.stat().st_size for file in self._path.parent.iterdir()),
            await reader.async_run(_rows, reader),
        )

    async def largest_document_bytes(self) -> int:
        """Return the size of the largest state."""
        page = await self._running.store.list(self._caller, limit=self._limits.max_list_page)
        return max(info.size_bytes for info in page.handles)

    @property
    def _wal(self) -> Path:
        return self._path.with_name(self._path.name + "-wal")

    async def _patch(self) -> None:
        self._patched += 1
        number = self._patched
        handle = self._handles[number % len(self._handles)]
        text = f"{number}".ljust(TEXT_BYTES, ".")
        operation: Operation = (
            Append("log", text) if number % 17 == 0 else SetKey("", f"k{number % 41}", text)
        )
        await self._running.store.patch(self._next_call(number), handle, [operation])

    def _next_call(self, number: int) -> Caller:
        shim = number % SHIMS
        self._calls[shim] += 1
        caller = replace(self._caller, token=CallToken(_origin(shim), self._calls[shim]))
        if number % 7 == 0:
            caller = replace(caller, request=request_key(f"call {number}", "patch", {}, self._limits))
        return caller

    async def _mint_passing(self) -> None:
        document: Document = {"text": "x" * 2_000}
        await self._running.store.mint(self._caller, kind="brief", document=document, ttl_days=0.5)

    async def _mint_and_delete(self) -> None:
        document: Document = {"text": "x" * 10_000}
        receipt = await self._running.store.mint(self._caller, kind="gone", document=document)
        await self._running.store.delete(self._caller, receipt.info.handle)


def row_bounds(limits: Limits, habits: Habits) -> dict[str, float]:
    """Return the most rows that such days may leave in each table, however many they are."""
    patches_of_one = habits.patches / habits.handles
    kept = min(limits.history_changes, patches_of_one * limits.history_days) * (1 + SLACK)
    trash = min(limits.trash_handles, habits.deleted * (limits.trash_days + 1))
    passing = habits.passing / 2 + habits.passing / habits.slots + 1
    calls = habits.patches * habits.day_seconds / DAY
    return {
        "changes": habits.handles * (kept + patches_of_one / habits.slots + 2) + 2 * trash + 2 * passing,
        "handles": habits.handles + trash + passing,
        "trash": trash,
        "ledger": calls / SHIMS + habits.patches / habits.slots + SHIMS,
        "request_keys": calls / 7 + habits.patches / habits.slots + 1,
    }


def bytes_bound(limits: Limits, habits: Habits, *, document_bytes: int) -> int:
    """Return the most bytes that such days may leave on the disk, however many they are.

    A checkpoint comes when the changes since the last one outweigh the document: together the checkpoints
    weigh no more than the changes, but for the first one and the newest.
    """
    rows = row_bounds(limits, habits)
    changes = rows["changes"] * (2 * RECORD_BYTES + ROW_BYTES)
    documents = 2 * habits.handles * document_bytes + (rows["handles"] - habits.handles) * 12_000
    answers = (rows["ledger"] + rows["request_keys"]) * ANSWER_BYTES
    used = LOOSEST * (changes + documents + answers + rows["handles"] * HANDLE_BYTES)
    part = compaction.KEPT_PART
    database = max(used * part / (part - 1), used + compaction.KEPT_BYTES)
    index = limits.wal_bytes // 100
    return int(database + limits.wal_bytes + index + limits.reserve_bytes)


def _rows(db: apsw.Connection) -> dict[str, int]:
    queries = {
        "changes": "SELECT count(*) FROM changes",
        "handles": "SELECT count(*) FROM handles",
        "trash": "SELECT count(*) FROM handles WHERE trash_until IS NOT NULL",
        "ledger": "SELECT count(*) FROM ledger",
        "request_keys": "SELECT count(*) FROM request_keys",
    }
    counts: dict[str, Any] = {name: db.execute(sql).get for name, sql in queries.items()}
    return counts


def _share(whole: int, part: int, parts: int) -> int:
    return whole * (part + 1) // parts - whole * part // parts


def _origin(shim: int) -> bytes:
    return bytes([shim]) * 16


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
