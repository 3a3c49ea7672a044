"""Exactly once: which forwarded calls were applied, and which are being applied right now.

The rows themselves are the backend's, written in the transaction of the change that they belong to.
Here is what only this process knows: the calls that are running, so that one that is sent again waits
for its first run; and how far each shim has told that it needs no answers any more. Owned by the event
loop's thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from mcpstated.protocol.documents import dump
from mcpstated.protocol.store import HandleInfo, Receipt, Revision, Touched, info_from_wire, info_to_wire

if TYPE_CHECKING:
    from mcpstated.daemon.backends.interface import Repeated
    from mcpstated.protocol.store import Caller

CallName: TypeAlias = "tuple[object, ...]"

KEPT_SECONDS = 24 * 3600.0
"""A row that no shim has settled is forgotten after this time: nobody waits that long for an answer.
An answer under a request key is kept as long."""


class Claim:
    """The right to run one call; released exactly once."""

    def __init__(self, ledger: Ledger, names: Sequence[CallName], *, must_recall: bool) -> None:
        self._ledger = ledger
        self._names = names
        self.must_recall = must_recall
        """True if the call may have been applied before."""

    def release(self) -> None:
        """Let the next run of the same call go on."""
        for name in self._names:
            self._ledger.release(name)


class Ledger:
    """The running calls and the settled ones."""

    def __init__(self) -> None:
        self._running: dict[CallName, trio.Event] = {}
        self._floors: dict[bytes, int] = {}
        """Noted, and rows below them not yet removed."""

    async def claim(self, caller: Caller) -> Claim:
        """Return the right to run a caller's call, after the runs that have it have ended.

        Runs of one call are those with one token, and those with one request key.
        """
        names = _names_of(caller)
        had_to_wait = False
        while running := [self._running[name] for name in names if name in self._running]:
            had_to_wait = True
            await running[0].wait()
        for name in names:
            self._running[name] = trio.Event()
        token = caller.token
        must_recall = token is not None and (token.is_resent or had_to_wait)
        return Claim(self, names, must_recall=must_recall)

    def release(self, name: CallName) -> None:
        """End a run. Only its claim calls this."""
        self._running.pop(name).set()

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


def _names_of(caller: Caller) -> list[CallName]:
    """Name one call; neither a token nor a key says anything about another user's calls."""
    names: list[CallName] = []
    if (token := caller.token) is not None:
        names.append((caller.space, caller.user, token.origin, token.sequence))
    if (request := caller.request) is not None:
        names.append((caller.space, caller.user, request.key))
    return names


def receipt_to_text(
    info: HandleInfo,
    touched: Sequence[Touched],
    *,
    is_deleted: bool = False,
    trash_until: float | None = None,
    is_changed: bool = True,
) -> str:
    """Return what is kept of the answer to a write; the revision of a change is the row's own."""
    fields = info_to_wire(info)
    record: dict[str, Any] = {"info": fields, "is_deleted": is_deleted}
    if is_changed:
        del fields["revision"]
    else:
        record["is_changed"] = False
    if trash_until is not None:
        record["trash_until"] = trash_until
    if touched:
        record["touched"] = [[item.op, item.path, item.length] for item in touched]
    return dump(record)


def receipt_from(repeated: Repeated) -> Receipt:
    """Return the answer that was kept, marked as replayed."""
    record = json.loads(repeated.receipt)
    return Receipt(
        info_from_wire({"revision": Revision(repeated.revision), **record["info"]}),
        is_changed=record.get("is_changed", True),
        touched=tuple(Touched(op, path, length) for op, path, length in record.get("touched", ())),
        is_deleted=record["is_deleted"],
        is_replayed=True,
        trash_until=record.get("trash_until"),
    )
