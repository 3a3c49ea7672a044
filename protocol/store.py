"""The store interface: what the MCP surface, the wire and the library ask of an engine.

One `Store` holds the documents of many users. Every call says who makes it (`Caller`) and comes back
with frozen values; documents are plain JSON values that nobody may change in place, for the engine
shares their parts between versions. Times are seconds since the Unix epoch on the store's own clock,
which never goes backward.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NewType, Protocol

if TYPE_CHECKING:
    from mcpstated.protocol.documents import Document
    from mcpstated.protocol.handle_record import HandleRecord
    from mcpstated.protocol.patches import Operation

HandleId = NewType("HandleId", str)
"""What a model carries: `research_k3v9x2mq`."""
Version = NewType("Version", int)
"""Counts the effective changes of one handle, from 1."""
Revision = NewType("Revision", int)
"""Counts the changes of the whole store; only grows."""

Space = Literal["agent", "app"]
"""`agent` is what tools see; `app` belongs to programs and is invisible to tools."""
Action = Literal["mint", "save", "patch", "touch", "delete", "expire", "undelete", "import"]
"""What a change did to its handle."""


class _Keep(enum.Enum):
    KEEP = "keep"


KEEP: Final = _Keep.KEEP
"""Leave this property as it is; `None` would clear it."""
KeepType = Literal[_Keep.KEEP]


@dataclass(frozen=True, slots=True)
class CallToken:
    """Names one forwarded call for ever: the same token is applied at most once."""

    origin: bytes
    """The 16 bytes that the shim chose when it started."""
    sequence: int
    """The line's number within that shim."""
    is_resent: bool = False
    """True if the peer may have sent this call before; only then is the ledger looked at."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """A name that a caller gave to one write, so that it may repeat it."""

    key: str
    """Unique among the user's writes of one day."""
    fingerprint: bytes
    """A digest of what was asked for: the same key with another one is refused."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call, and what is written beside the change."""

    user: str
    writer: str
    """A label for people, such as `laptop/claude-code`."""
    token: CallToken | None = None
    space: Space = "agent"
    request: RequestKey | None = None
    """Repeating a write under the same key within a day gives the first answer again."""


@dataclass(frozen=True, slots=True)
class HandleInfo:
    """What is known of a handle without its document."""

    handle: HandleId
    kind: str
    title: str | None
    version: Version
    revision: Revision
    """The store-wide number of the change that made this version."""
    created_at: float
    updated_at: float
    expires_at: float | None
    """None means never."""
    last_writer: str
    size_bytes: int
    """UTF-8 bytes of the document's compact JSON."""
    outline: str
    """One line that tells the document's shape (`mcpstated.protocol.outline.summary`)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A document with its metadata, as one read returns it."""

    info: HandleInfo
    document: Document


@dataclass(frozen=True, slots=True)
class Touched:
    """What one patch operation did, for the reply."""

    op: str
    path: str
    """The path as the caller spelled it."""
    length: int | None = None
    """Items of the list, or keys of the object, at the path afterwards."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of a write that is durable."""

    info: HandleInfo
    is_changed: bool
    """False if the write had no effect: version, writer and expiry are as before."""
    touched: tuple[Touched, ...] = ()
    is_deleted: bool = False
    is_replayed: bool = False
    """True if this call had been applied before and the answer comes from the ledger."""
    trash_until: float | None = None
    """Until when a deleted handle can be brought back; None if it is gone for good."""


@dataclass(frozen=True, slots=True)
class Trashed:
    """A deleted handle that can be brought back."""

    info: HandleInfo
    """Its version is that of the deletion."""
    deleted_at: float
    trash_until: float


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, newest change first."""

    handles: tuple[HandleInfo, ...]
    total: int
    """Handles that match, on all pages, when this page was read."""
    next_cursor: str | None
    """Hand it back for the next page; None on the last one."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """What `status` says of the store."""

    path: str
    size_bytes: int
    """Of the database file and its write-ahead log together."""
    revision: Revision
    handles: int
    """Live handles of all users."""
    schema_version: int
    sqlite_version: str
    cache_bytes: int
    cached_documents: int


class Store(Protocol):
    """Durable, versioned, expiring JSON documents, keyed by user and handle.

    Every method raises `McpStateError` subclasses only. A write returns after its change is durable;
    cancelling the caller does not take back a write that has been evaluated. Of two writes that one
    task makes one after the other, everyone sees the first first.
    """

    async def mint(
        self,
        caller: Caller,
        *,
        kind: str,
        document: Document,
        ttl_days: float | None = None,
        title: str | None = None,
    ) -> Receipt:
        """Make a new handle with version 1.

        Raises:
            InvalidInput: An argument is out of range, or the document is no JSON object that can be kept.
            StateTooLarge: The document is above the limit.
            QuotaExceeded: The user holds as many handles as is allowed.
            StorageFull: The disk is full; nothing was stored.
            BackendError: The storage failed, or the store is closing; nothing was stored.
            OutcomeUnknown: The storage failed so that it cannot tell whether the change was stored.

        Durability: Returns once the change, or what a call without effect rests on, is flushed to the disk.
        Cancellation: Takes nothing back: once evaluated, the change is stored although nobody waits for it.
        """
        ...

    async def save(
        self,
        caller: Caller,
        handle: str,
        *,
        document: Document,
        expect_version: int,
        ttl_days: float | None | KeepType = KEEP,
        title: str | None | KeepType = KEEP,
    ) -> Receipt:
        """Replace the document if its version still is `expect_version`.

        Raises:
            StaleWrite: It has another version; `current` tells what changed since.
            HandleNotFound: The user has no such handle.
            HandleExpired: Its time has passed.
            InvalidInput: An argument is out of range, or the document is no JSON object that can be kept.
            StateTooLarge: The document is above the limit.
            StorageFull: The disk is full; nothing was stored.
            BackendError: The storage failed, or the store is closing; nothing was stored.
            OutcomeUnknown: The storage failed so that it cannot tell whether the change was stored.

        Durability: Returns once the change, or what a call without effect rests on, is flushed to the disk.
        Cancellation: Takes nothing back: once evaluated, the change is stored although nobody waits for it.
        """
        ...

    async def patch(self, caller: Caller, handle: str, operations: Sequence[Operation]) -> Receipt:
        """Apply all operations or none to the newest document; never refused for contention.

        Raises:
            PatchError: An operation does not fit; `index` tells which. None was applied.
            HandleNotFound: The user has no such handle.
            HandleExpired: Its time has passed.
            InvalidInput: There are too many operations, or the handle is none that could exist.
            StateTooLarge: The document would pass the limit.
            StorageFull: The disk is full; nothing was stored.
            BackendError: The storage failed, or the store is closing; nothing was stored.
            OutcomeUnknown: The storage failed so that it cannot tell whether the change was stored.

        Durability: Returns once the change, or what a call without effect rests on, is flushed to the disk.
        Cancellation: Takes nothing back: once evaluated, the change is stored although nobody waits for it.
        """
        ...

    async def touch(self, caller: Caller, handle: str, *, ttl_days: float | None) -> Receipt:
        """Let the handle expire that many days from now, or never if None.

        Raises:
            HandleNotFound: The user has no such handle.
            HandleExpired: Its time has passed.
            InvalidInput: `ttl_days` is out of range, or the handle is none that could exist.
            StorageFull: The disk is full; nothing was stored.
            BackendError: The storage failed, or the store is closing; nothing was stored.
            OutcomeUnknown: The storage failed so that it cannot tell whether the change was stored.

        Durability: Returns once the change, or what a call without effect rests on, is flushed to the disk.
        Cancellation: Takes nothing back: once evaluated, the change is stored although nobody waits for it.
        """
        ...

    async def delete(self, caller: Caller, handle: str) -> Receipt:
        """Delete the handle; every later call answers HandleNotFound. Works on an expired handle too.

        It stays in the trash for `Limits.trash_days`, from which only `undelete` brings it back.

        Raises:
            HandleNotFound: The user has no such handle, or not any more.
            InvalidInput: The handle is none that could exist.
            StorageFull: The disk is full; nothing was stored.
            BackendError: The storage failed, or the store is closing; nothing was stored.
            OutcomeUnknown: The storage failed so that it cannot tell whether the change was stored.

        Durability: Returns once the change, or what a call without effect rests on, is flushed to the disk.
        Cancellation: Takes nothing back: once evaluated, the change is stored although nobody waits for it.
        """
        ...

    async def adopt(self, caller: Caller, record: HandleRecord) -> Receipt:
        """Take a handle over from another store: under its name, with its version, times and history.

        The caller's user gets it, whoever's it was; the writer of its newest version stays.

        Raises:
            HandleExists: The user holds a handle of that name, or has it in the trash.
            InvalidInput: A part is out of range, its time is over, or its history does not lead to its state.
            StateTooLarge: A document is above the limit.
            QuotaExceeded: The user holds as many handles as is allowed.
            StorageFull: The disk is full; nothing was stored.
            BackendError: The storage failed, or the store is closing; nothing was stored.
            OutcomeUnknown: The storage failed so that it cannot tell whether the change was stored.

        Durability: Returns once the handle is flushed to the disk.
        """
        ...

    async def trash(self, caller: Caller) -> tuple[Trashed, ...]:
        """Return the caller's deleted handles that can be brought back, the last deleted first.

        Raises:
            BackendError: The storage failed, or the store is closing.
        """
        ...

    async def undelete(self, caller: Caller, handle: str) -> Receipt:
        """Bring a deleted handle back as its next version; its time to live begins anew.

        Raises:
            HandleNotFound: It is not in the trash.
            QuotaExceeded: The user holds as many handles as is allowed.
            StorageFull: The disk is full; nothing was stored.
            BackendError: The storage failed, or the store is closing; nothing was stored.
            OutcomeUnknown: The storage failed so that it cannot tell whether the change was stored.

        Durability: Returns once the change is flushed to the disk.
        """
        ...

    async def empty_trash(self, caller: Caller, handle: str | None = None) -> int:
        """Remove one deleted handle for good, or all; return how many that were.

        Raises:
            HandleNotFound: The handle that was named is not in the trash.
            BackendError: The storage failed, or the store is closing.
        """
        ...

    async def load(self, caller: Caller, handle: str, *, version: int | None = None) -> Snapshot:
        """Return the newest durable document, or an older one.

        Raises:
            HandleNotFound: The user has no such handle.
            HandleExpired: Its time has passed.
            HistoryCompacted: That version has been folded away.
            InvalidInput: There is no such version yet.
            BackendError: The storage failed, or the store is closing.
        """
        ...

    async def list(
        self,
        caller: Caller,
        *,
        kind: str | None = None,
        query: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Return live handles of the caller's user and space, newest change first.

        `query` filters on words in handle, title and kind, case-insensitively; all must occur.
        A handle that changes while somebody pages may be met again or moved ahead of the cursor; one
        that does not change is met exactly once.

        Raises:
            InvalidInput: A filter, the cursor or the limit is not understood.
            BackendError: The storage failed, or the store is closing.
        """
        ...


def info_to_wire(info: HandleInfo) -> dict[str, object]:
    """Return the fields of `info` under their own names, for the wire (times stay numbers)."""
    return {
        "handle": info.handle,
        "kind": info.kind,
        "title": info.title,
        "version": info.version,
        "revision": info.revision,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
        "expires_at": info.expires_at,
        "last_writer": info.last_writer,
        "size_bytes": info.size_bytes,
        "outline": info.outline,
    }


def info_from_wire(fields: Mapping[str, object]) -> HandleInfo:
    """Return what `info_to_wire` wrote."""
    return HandleInfo(**fields)  # type: ignore[arg-type]
