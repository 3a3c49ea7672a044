"""What the engine asks of a database, in words that SQLite, Redis and PostgreSQL can all answer.

A backend keeps the log of each handle and what is derived from it for lists. The one thing that it
must do atomically is `append`: add changes whose base version still is the newest, all of a batch
with one flush to disk. Documents are JSON text here; only the engine parses them. Above it: the engine
and its committer. Failures come out as `StorageFull` or `BackendError`, with the reason in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from mcpstated.protocol.store import Action, CallToken, HandleId, HandleInfo, RequestKey, Space, Trashed

COMES_AND_GOES: dict[Action, int] = {"mint": 1, "import": 1, "undelete": 1, "delete": -1}
"""What an appended change does to the number of its user's handles."""


class StoreRefused(Exception):
    """The store cannot be opened and was left as it is; the text says why, for the person who starts it."""


@dataclass(frozen=True, slots=True)
class Key:
    """Names one handle of one user."""

    space: Space
    user: str
    handle: HandleId


@dataclass(frozen=True, slots=True)
class History:
    """The past of a handle that comes from another store. Its revisions are given anew."""

    checkpoints: tuple[StoredCheckpoint, ...]
    """The first one is where the history begins."""
    changes: tuple[StoredChange, ...]
    """After the first checkpoint, without gaps, up to the newest version."""

    @property
    def stored_bytes(self) -> int:
        """What it counts for in the limit of a history: the document that it begins with does not."""
        records = sum(len(change.body) for change in self.changes)
        return records + sum(len(checkpoint.document) for checkpoint in self.checkpoints[1:])


@dataclass(frozen=True, slots=True)
class NewChange:
    """One change to be appended, with the metadata that holds after it."""

    key: Key
    base: int
    """The version that it was evaluated against; 0 if the handle must not exist."""
    action: Action
    body: str
    """The log record (`mcpstated.daemon.changes`)."""
    info: HandleInfo
    """After the change. Its revision is not known yet and ignored."""
    ttl_days: float | None
    words: str
    """What a list's query is compared with."""
    document: str | None
    """The whole document, if this change is to be a checkpoint."""
    token: CallToken | None
    receipt: str | None
    """What the ledger keeps for `token` and `request`."""
    request: RequestKey | None = None
    trash_until: float | None = None
    """A delete only: until when the handle can be brought back; None if not at all."""
    history: History | None = None
    """An import only: what is stored in the place of this one change."""

    @property
    def takes_away(self) -> bool:
        """True if it must be possible on a full disk, because it leads to space being freed."""
        return self.action == "delete"

    @property
    def stored_bytes(self) -> int:
        """What this change adds to the handle's history: its record, and its document if there is one.

        Counted in characters of text, which is near enough for a limit.
        """
        history_bytes = 0 if self.history is None else self.history.stored_bytes
        return len(self.body) + len(self.document or "") + history_bytes


@dataclass(frozen=True, slots=True)
class Applied:
    """The change is durable."""

    revision: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The base was not the newest version; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The change's token was applied before; nothing was changed."""

    revision: int
    receipt: str


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """A call that was made under a request key, and its answer."""

    fingerprint: bytes
    answer: Repeated


Outcome: TypeAlias = Applied | Conflict | Repeated


@dataclass(frozen=True, slots=True)
class StoredHead:
    """A live handle's metadata."""

    info: HandleInfo
    ttl_days: float | None
    oldest_version: int
    """The oldest version that can still be read."""
    history_bytes: int
    """Bytes of the changes and documents kept since then."""
    trash_until: float | None = None
    """None if it is live."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A whole document, with the metadata of its version."""

    version: int
    revision: int
    title: str | None
    expires_at: float | None
    ttl_days: float | None
    writer: str
    at: float
    document: str


@dataclass(frozen=True, slots=True)
class StoredChange:
    """One entry of the log."""

    version: int
    revision: int
    action: Action
    body: str
    writer: str
    at: float


@dataclass(frozen=True, slots=True)
class StoredHandle:
    """What a version of a document is rebuilt from."""

    head: StoredHead
    checkpoint: StoredCheckpoint | None
    """The newest one at or below the version asked for; None if that version has been folded away."""
    changes: tuple[StoredChange, ...]
    """After the checkpoint, in order, up to the version asked for."""


@dataclass(frozen=True, slots=True)
class StoredPage:
    """One page of a list and how many handles match on all of them."""

    handles: tuple[HandleInfo, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Removed:
    """A handle that expired and is gone."""

    key: Key
    kind: str
    version: int
    revision: int
    at: float


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """Where the history of a handle should begin."""

    version: int
    is_checkpointed: bool
    """False if the document of that version has yet to be stored as a checkpoint."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What a store says of itself when it is opened."""

    revision: int
    newest_at: float
    """When the newest change was made, or the time was last noted; 0 in an empty store."""
    noted_at: float
    """When the time was last noted; 0 if never."""
    noted_boot: str
    """What was noted with it."""
    store_id: str
    """Names this store among all, its copies and backups included; empty if the disk had no room for it."""


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """The backend's part of `status`."""

    path: str
    size_bytes: int
    revision: int
    handles: int
    schema_version: int
    sqlite_version: str


class Backend(Protocol):
    """One database. All calls come from one event loop; only `append` is never cancelled half way.

    Every method but `open` and `aclose` raises `StorageFull` and `BackendError`, and `append` also
    `OutcomeUnknown`; an unexpected error of `append` comes out as it is, for its committer to narrow down.
    """

    async def open(self) -> Opened:
        """Open or create the store. Raises: StoreRefused, and then nothing on disk has changed."""
        ...

    async def aclose(self) -> None:
        """Flush, close, and end every thread. Does nothing if it is not open."""
        ...

    async def append(self, changes: Sequence[NewChange], settled: Mapping[bytes, int]) -> Sequence[Outcome]:
        """Append the changes whose base still is the newest version, in order, atomically and durably.

        A later change of the batch may build on an earlier one of the same handle; once one of them is
        not applied, those after it are conflicts, even if the version happens to fit. If this raises,
        none was applied; only after `OutcomeUnknown` they may all turn up once the machine has crashed.

        Args:
            settled: Ledger rows below these sequence numbers, by origin, may be forgotten along the way.
        """
        ...

    async def load(
        self, key: Key, *, version: int | None = None, with_trash: bool = False
    ) -> StoredHandle | None:
        """Return what the newest, or that, version is rebuilt from; None if there is no live handle.

        Args:
            with_trash: A handle in the trash counts too.
        """
        ...

    async def changes(self, key: Key, *, after: int, upto: int, limit: int) -> Sequence[StoredChange]:
        """Return the kept changes with after < version <= upto, oldest first, at most `limit`."""
        ...

    async def list(
        self,
        space: Space,
        user: str,
        *,
        kind: str | None,
        words: Sequence[str],
        before: int | None,
        limit: int,
        now: float,
    ) -> StoredPage:
        """Return live handles that have not expired, by falling revision, below revision `before`.

        Args:
            words: Each must occur in the text that `NewChange.words` gave.
        """
        ...

    async def count(self, space: Space, user: str) -> tuple[int, int]:
        """Return how many handles the user holds, expired ones included, and as of which revision."""
        ...

    async def recall(self, space: Space, user: str, token: CallToken) -> Repeated | None:
        """Return what the ledger says of a user's call; None if it was never applied."""
        ...

    async def recall_request(self, space: Space, user: str, key: str, *, after: float) -> KnownRequest | None:
        """Return what was answered under a user's request key after a time; None if nothing was."""
        ...

    async def note_request(self, key: Key, request: RequestKey, receipt: str, *, now: float) -> None:
        """Keep the answer to a call that had no effect and was made under a request key."""
        ...

    async def trash(self, space: Space, user: str, *, now: float, limit: int) -> Sequence[Trashed]:
        """Return deleted handles that can be brought back, the last deleted first."""
        ...

    async def empty_trash(self, space: Space, user: str, handle: HandleId | None, *, limit: int) -> int:
        """Take one deleted handle, or up to `limit`, out of the trash for `purge`; return how many."""
        ...

    async def trim_trash(self, *, keep_handles: int, keep_bytes: int) -> int:
        """Take the oldest out of every user's trash until it fits; return how many that were."""
        ...

    async def expire(
        self, now: float, *, limit: int, owner: tuple[Space, str] | None = None
    ) -> Sequence[Removed]:
        """Delete up to `limit` handles whose time has passed, of one owner or of everyone."""
        ...

    async def purge(self, *, now: float, limit: int) -> int:
        """Remove up to about `limit` rows of deleted handles that are not in the trash any more.

        Returns: How many were removed.
        """
        ...

    async def forget_settled(self, settled: Mapping[bytes, int]) -> None:
        """Remove the ledger rows below these sequence numbers, by origin."""
        ...

    async def forget_old(self, *, before: float, limit: int) -> int:
        """Remove up to `limit` ledger rows and request keys each from before a time; return how many."""
        ...

    async def aged(self, *, before: float, limit: int) -> Sequence[Key]:
        """Return handles, live or in the trash, whose log begins with changes made before a time."""
        ...

    async def plan_fold(
        self, key: Key, *, keep_changes: int, keep_bytes: int, before: float
    ) -> FoldPlan | None:
        """Return where the history should begin so that it fits; None if nothing is to be removed.

        A checkpoint that is there already is preferred to writing one just for this.

        Args:
            before: Changes made before this time are folded whatever their number.
        """
        ...

    async def fold(
        self, key: Key, plan: FoldPlan, checkpoint: StoredCheckpoint | None, *, limit: int
    ) -> int | None:
        """Let the history begin at the plan's version and remove up to `limit` older rows.

        Returns: The bytes of history that are kept; None if older rows are left: call it again.
        """
        ...

    async def compact(self) -> bool:
        """Give some of the space that is free inside the store back; False if there is no need to."""
        ...

    async def note_time(self, now: float, boot: str) -> None:
        """Keep the clock's time for the next `open`, unless a later one is kept already.

        Args:
            boot: What the clock wants to have back with it.
        """
        ...

    async def tidy(self) -> None:
        """Bring the write-ahead log back to its limit if it has grown beyond."""
        ...

    async def status(self, now: float) -> BackendStatus:
        """Return size, counts and versions."""
        ...
