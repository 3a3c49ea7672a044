"""A story that a store lives through on a recorded disk, and what is known of it at each moment.

Every write is sent through the real engine. Its `Fact` says at which moment of the recording it was begun
and at which it was acknowledged: a cut after that must not lose it, one before the first must not show it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from mcpstated.daemon.backends import compaction, opening
from mcpstated.daemon.testing import GatedBackend, ManualTime, RunningEngine, open_engine
from mcpstated.protocol.documents import Document
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append, Operation, SetKey
from mcpstated.protocol.request_keys import request_key
from mcpstated.protocol.store import Caller, CallToken, HandleId, Receipt
from support.old_store import OLD_DOCUMENT, OLD_HANDLE
from support.power_cut import PowerCut, Step

LIMITS = Limits(history_changes=8, wal_bytes=300_000, reserve_bytes=0)
"""Small, so that folding and cutting the log happen within a short story."""
CHECKPOINT_PAGES = 40
"""Pages in the log after which it is moved into the database, for the same reason,"""
KEPT_BYTES = 16_384
"""and free bytes that are not given back to the disk."""
ALICE = Caller("alice", "laptop/claude-code")


@dataclass(frozen=True, slots=True)
class Fact:
    """One change of one handle, and when it was made."""

    revision: int
    handle: HandleId
    version: int
    document: Document | None
    """None if the change took the handle away."""
    title: str | None
    is_in_trash: bool
    may_expire: bool
    begun: int
    acknowledged: int


@dataclass(slots=True)
class Kept:
    """The answer to a call, which must be there as long as somebody may ask for it."""

    revision: int
    acknowledged: int
    released: int | None = None
    """From when on it may be forgotten."""


@dataclass(slots=True)
class Emptied:
    """A handle was taken out of the trash."""

    begun: int
    acknowledged: int


@dataclass(slots=True)
class Story:
    """All that was done, in the order of revisions."""

    steps: list[Step]
    """What the disk recorded."""
    facts: list[Fact] = field(default_factory=list)
    tokens: dict[CallToken, Kept] = field(default_factory=dict)
    requests: dict[str, Kept] = field(default_factory=dict)
    emptied: dict[HandleId, Emptied] = field(default_factory=dict)

    def acknowledged_at(self, moment: int) -> int:
        """Return the newest revision that somebody was told of by then."""
        return max((fact.revision for fact in self.facts if fact.acknowledged <= moment), default=0)

    def begun_at(self, moment: int) -> int:
        """Return the newest revision that can be there by then."""
        return max((fact.revision for fact in self.facts if fact.begun < moment), default=0)

    def heads_at(self, revision: int) -> dict[HandleId, Fact]:
        """Return the last change of every handle as of a revision."""
        facts = sorted(self.facts, key=lambda fact: fact.revision)
        return {fact.handle: fact for fact in facts if fact.revision <= revision}


async def tell(disk: PowerCut, path: Path, *, seed: int, rounds: int) -> Story:
    """Let a store live through a story, with a restart in its middle; return what is known of it.

    Args:
        path: There may be a store of the first schema already, made by `support.old_store`.
    """
    story = Story(disk.steps)
    rng = random.Random(seed)
    time = ManualTime()
    if path.exists():
        story.facts.append(_old_fact())
    with disk.record_python(), _small_steps():
        for _ in range(2):
            backend = GatedBackend(path, limits=LIMITS, vfs=disk.name)
            async with open_engine(path, limits=LIMITS, time=time, backend=backend) as running:
                await _Teller(story, running, rng, disk).go_on(rounds)
    return story


def _old_fact() -> Fact:
    return Fact(1, OLD_HANDLE, 1, OLD_DOCUMENT, "Old", False, False, begun=-1, acknowledged=1)


@contextmanager
def _small_steps() -> Iterator[None]:
    usual = opening.AUTOCHECKPOINT_PAGES, compaction.KEPT_BYTES
    opening.AUTOCHECKPOINT_PAGES, compaction.KEPT_BYTES = CHECKPOINT_PAGES, KEPT_BYTES
    try:
        yield
    finally:
        opening.AUTOCHECKPOINT_PAGES, compaction.KEPT_BYTES = usual


class _Teller:
    def __init__(self, story: Story, running: RunningEngine, rng: random.Random, disk: PowerCut) -> None:
        self._story = story
        self._running = running
        self._store = running.store
        self._rng = rng
        self._disk = disk
        self._live = sorted({*_live(story)})

    async def go_on(self, rounds: int) -> None:
        """Do this and that to the store; every kind of step comes up in seven rounds."""
        often: list[Callable[[], Awaitable[object]]] = [self._mint, self._patch, self._patch]
        now_and_then: list[Callable[[], Awaitable[object]]] = [
            self._save,
            self._bring_back,
            self._expire,
            self._free_space,
            self._patch_with_token,
            self._patch_with_request,
            self._delete,
        ]
        while len(self._live) < 4:
            await self._mint()
        for number in range(rounds):
            await self._rng.choice(often)()
            await self._patch_many()
            await self._patch_with_token()
            await now_and_then[number % len(now_and_then)]()

    async def _write(self, write: Callable[[], Awaitable[Receipt]], **known: bool) -> Receipt:
        begun = self._disk.moment
        receipt = await write()
        acknowledged = self._disk.moment
        info = receipt.info
        document = None
        if not receipt.is_deleted:
            document = (await self._store.load(ALICE, info.handle, version=info.version)).document
        self._story.facts.append(
            Fact(
                info.revision,
                info.handle,
                info.version,
                document,
                info.title,
                receipt.trash_until is not None,
                known.get("may_expire", False),
                begun,
                acknowledged,
            )
        )
        return receipt

    def _text(self) -> str:
        size = self._rng.choice((5, 300, 5_000))
        return f"{self._rng.random()}".ljust(size, "-")

    async def _mint(self) -> None:
        document: Document = {"l": [self._text()]}
        title = self._rng.choice((None, "Heat pumps"))
        receipt = await self._write(lambda: self._store.mint(ALICE, kind="a", document=document, title=title))
        self._live.append(receipt.info.handle)

    async def _patch(self, caller: Caller = ALICE, handle: HandleId | None = None) -> Receipt:
        target = handle or self._rng.choice(self._live)
        operations: list[Operation] = [Append("l", self._text()), SetKey("", "n", self._rng.random())]
        return await self._write(lambda: self._store.patch(caller, target, operations))

    async def _patch_many(self) -> None:
        async with trio.open_nursery() as nursery:  # they share a batch, or two
            for handle in self._live[:3]:
                nursery.start_soon(self._patch, ALICE, handle)

    async def _patch_with_token(self) -> None:
        story = self._story
        token = CallToken(b"o" * 16, len(story.tokens) + 1)
        receipt = await self._patch(replace(ALICE, token=token))
        story.tokens[token] = Kept(receipt.info.revision, self._disk.moment)
        if token.sequence % 5 == 0:
            for known, kept in story.tokens.items():
                if known.sequence < token.sequence and kept.released is None:
                    kept.released = self._disk.moment
            self._store.note_settled(token.origin, token.sequence)

    async def _patch_with_request(self) -> None:
        name = f"key {len(self._story.requests)}"
        receipt = await self._patch(replace(ALICE, request=request_key(name, "patch", {}, LIMITS)))
        self._story.requests[name] = Kept(receipt.info.revision, self._disk.moment)

    async def _save(self) -> None:
        handle = self._rng.choice(self._live)
        version = (await self._store.load(ALICE, handle)).info.version
        document: Document = {"l": [], "saved": self._text()}
        await self._write(lambda: self._store.save(ALICE, handle, document=document, expect_version=version))

    async def _delete(self, handle: HandleId | None = None) -> None:
        target = handle or self._rng.choice(self._live)
        await self._write(lambda: self._store.delete(ALICE, target))
        self._live.remove(target)

    async def _bring_back(self) -> None:
        handle = self._rng.choice(self._live)
        await self._write(lambda: self._store.delete(ALICE, handle))
        await self._write(lambda: self._store.undelete(ALICE, handle))

    async def _free_space(self) -> None:
        document: Document = {"l": ["x" * 40_000]}
        receipt = await self._write(lambda: self._store.mint(ALICE, kind="big", document=document))
        handle = receipt.info.handle
        self._live.append(handle)
        await self._patch()
        await self._delete(handle)
        begun = self._disk.moment
        await self._store.empty_trash(ALICE, handle)
        self._story.emptied[handle] = Emptied(begun, self._disk.moment)
        await self._store.sweep()

    async def _expire(self) -> None:
        document: Document = {"l": [self._text()]}
        receipt = await self._write(
            lambda: self._store.mint(ALICE, kind="brief", document=document, ttl_days=0.01), may_expire=True
        )
        self._running.time.pass_seconds(1_000)
        begun = self._disk.moment
        await self._store.sweep()
        info = receipt.info
        status = await self._store.status()
        assert status.revision == info.revision + 1, "exactly one handle expires in a sweep"
        self._story.facts.append(
            Fact(
                info.revision + 1,
                info.handle,
                info.version + 1,
                None,
                None,
                is_in_trash=False,
                may_expire=True,
                begun=begun,
                acknowledged=self._disk.moment,
            )
        )


def _live(story: Story) -> Iterator[HandleId]:
    for handle, fact in story.heads_at(max((fact.revision for fact in story.facts), default=0)).items():
        if fact.document is not None:
            yield handle
