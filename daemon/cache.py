"""Hot handles in memory: for each a durable head, and a tip that the next write builds on.

    head v7  ->  v8 (in a batch)  ->  v9 (queued) = tip

Reads return the head, writes are evaluated against the tip. The three share all parts of the document
that did not change. The cache is bounded by the size of its documents and drops what was used least
recently, but never an entry with writes on their way. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpstated.daemon.backends.interface import Key
    from mcpstated.daemon.changes import State
    from mcpstated.daemon.committer import Pending

ENTRY_OVERHEAD_BYTES = 1_024
"""What an entry costs beside its document, roughly."""


class Entry:
    """One handle in memory."""

    __slots__ = (
        "charged_bytes",
        "head",
        "history_bytes",
        "is_dropped",
        "key",
        "last",
        "oldest_version",
        "tip",
    )

    def __init__(self, key: Key, state: State | None, *, oldest_version: int, history_bytes: int) -> None:
        self.key = key
        self.head: State | None = state
        """The newest durable state; None if there is none yet."""
        self.tip: State | None = state
        """The newest state; None if a delete is on its way, or a mint is still to come."""
        self.last: Pending | None = None
        """The write that made the tip, while it is not durable."""
        self.oldest_version = oldest_version
        self.history_bytes = history_bytes
        self.charged_bytes = 0
        """What the cache counts for this entry. Owned by the cache."""
        self.is_dropped = False
        """True once the cache let go of it: nothing may build on it any more."""


class Cache:
    """Entries by key, the most recently used last."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self.size_bytes = 0
        """Bytes of all documents in it, with a fixed sum for each entry."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Entry | None:
        """Return the entry, which then counts as used."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def peek(self, key: Key) -> Entry | None:
        """Return the entry without counting that as use."""
        return self._entries.get(key)

    def add(self, entry: Entry) -> None:
        """Take a new entry in, and let go of old ones if that is too much."""
        self._entries[entry.key] = entry
        self.resized(entry)

    def resized(self, entry: Entry) -> None:
        """Count the entry's tip anew, and let go of old entries if that is too much."""
        if entry.is_dropped:
            return
        newest = entry.tip or entry.head
        charge = ENTRY_OVERHEAD_BYTES + (newest.info.size_bytes if newest is not None else 0)
        self.size_bytes += charge - entry.charged_bytes
        entry.charged_bytes = charge
        if self.size_bytes > self._max_bytes:
            self._shrink(spared=entry)

    def drop(self, entry: Entry) -> None:
        """Let go of an entry, whatever its state: the next use loads it afresh."""
        if entry.is_dropped:
            return
        entry.is_dropped = True
        self.size_bytes -= entry.charged_bytes
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]

    def _shrink(self, *, spared: Entry) -> None:
        excess_bytes = self.size_bytes - self._max_bytes
        leaving = []
        for entry in self._entries.values():  # the oldest first, and only as far as is needed
            if excess_bytes <= 0:
                break
            if entry.last is None and entry is not spared:
                leaving.append(entry)
                excess_bytes -= entry.charged_bytes
        for entry in leaving:
            self.drop(entry)
