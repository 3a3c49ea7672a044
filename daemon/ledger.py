"""Exactly once: which forwarded calls were applied, and which are being applied right now.

The rows themselves are the backend's, written in the transaction of the change that they belong to.
Here is what only this process knows: the calls that are running, so that one that is sent again waits
for its first run; and how far each shim has told that it needs no answers any more. Owned by the event
loop's thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import trio

from mcpstated.protocol.documents import dump
from mcpstated.protocol.store import HandleInfo, Receipt, Revision, Touched, info_from_wire, info_to_wire

if TYPE_CHECKING:
    from mcpstated.daemon.backends.interface import Repeated
    from mcpstated.protocol.store import Caller, CallToken

KEPT_SECONDS = 24 * 3600.0
"""A row that no shim has settled is forgotten after this time: nobody waits that long for an answer."""


class Claim:
    """The right to run one call; released exactly once."""

    def __init__(self, ledger: Ledger, caller: Caller, *, had_to_wait: bool) -> None:
        self._ledger = ledger
        self._caller = caller
        self.must_recall = caller.token is not None and (caller.token.is_resent or had_to_wait)
        """True if the call may have been applied before."""

    def release(self) -> None:
        """Let the next run of the same call go on."""
        if self._caller.token is not None:
            self._ledger.release(self._caller, self._caller.token)


class Ledger:
    """The running calls and the settled ones."""

    def __init__(self) -> None:
        self._running: dict[tuple[object, ...], trio.Event] = {}
        self._floors: dict[bytes, int] = {}
        """Noted, and rows below them not yet removed."""

    async def claim(self, caller: Caller) -> Claim:
        """Return the right to run a caller's call, after the run that has it has ended."""
        if caller.token is None:
            return Claim(self, caller, had_to_wait=False)
        key = _call(caller, caller.token)
        had_to_wait = False
        while (running := self._running.get(key)) is not None:
            had_to_wait = True
            await running.wait()
        self._running[key] = trio.Event()
        return Claim(self, caller, had_to_wait=had_to_wait)

    def release(self, caller: Caller, token: CallToken) -> None:
        """End a run. Only its claim calls this."""
        self._running.pop(_call(caller, token)).set()

    def note_settled(self, origin: bytes, floor: int) -> None:
        """Remember that calls of that shim below `floor` will not come again."""
        if floor > self._floors.get(origin, 0):
            self._floors[origin] = floor

    def floors_of(self, origins: Iterable[bytes]) -> dict[bytes, int]:
        """Return the noted floors of these shims."""
        return {origin: self._floors[origin] for origin in origins if origin in self._floors}

    def floors(self) -> dict[bytes, int]:
        """Return all noted floors."""
        return dict(self._floors)

    def pruned(self, settled: Mapping[bytes, int]) -> None:
        """Forget floors whose rows are gone."""
        for origin, floor in settled.items():
            if self._floors.get(origin) == floor:
                del self._floors[origin]


def _call(caller: Caller, token: CallToken) -> tuple[object, ...]:
    """Name one call; a token says nothing about another user's calls."""
    return caller.space, caller.user, token.origin, token.sequence


def receipt_to_text(info: HandleInfo, touched: Sequence[Touched], *, is_deleted: bool) -> str:
    """Return what the ledger keeps of the answer to a write; its revision is the row's own."""
    fields = info_to_wire(info)
    del fields["revision"]
    record: dict[str, Any] = {"info": fields, "is_deleted": is_deleted}
    if touched:
        record["touched"] = [[item.op, item.path, item.length] for item in touched]
    return dump(record)


def receipt_from(repeated: Repeated) -> Receipt:
    """Return the answer that the ledger kept, marked as replayed."""
    record = json.loads(repeated.receipt)
    info = replace(info_from_wire({**record["info"], "revision": 0}), revision=Revision(repeated.revision))
    touched = tuple(Touched(op, path, length) for op, path, length in record.get("touched", ()))
    return Receipt(info, is_changed=True, touched=touched, is_deleted=record["is_deleted"], is_replayed=True)
