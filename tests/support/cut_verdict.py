"""Whether a store that comes up from a disk state is one that the story allows."""

from __future__ import annotations

import contextlib
import hashlib
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mcpstated.daemon.maintenance.verify import verify_alone
from mcpstated.daemon.testing import RunningEngine, open_engine
from mcpstated.protocol.errors import HandleExpired, HandleNotFound, HistoryCompacted, McpStateError
from mcpstated.protocol.store import CallToken, HandleId
from support.cut_story import ALICE, LIMITS, Fact, Kept, Story
from support.disk_states import Disk, State, lay_down, states_at


class Lost(AssertionError):
    """A disk state shows something that must not be."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a store had when it came up."""

    revision: int
    trash: frozenset[HandleId]
    tokens: frozenset[CallToken]
    requests: frozenset[str]


@dataclass(slots=True)
class Tally:
    """How much was tried."""

    moments: int = 0
    states: int = 0
    distinct: int = 0
    """States that no other one was like; only these were opened."""


class Judge:
    """Opens disk states and compares them with the story."""

    def __init__(self, story: Story, database: Path, scratch: Path) -> None:
        """Build it.

        Args:
            scratch: A directory that it may fill and empty.
        """
        self._story = story
        self._name = database.name
        self._scratch = scratch
        self._seen: dict[bytes, Found] = {}
        self.tally = Tally()

    async def try_moments(self, moments: Iterable[int], *, seed: int, torn: int) -> None:
        """Cut the power at each of these moments, in rising order, and look at what may be on the disk.

        Raises:
            Lost: A state lost what was acknowledged, or shows what never was.
        """
        disk, played = Disk(), 0
        for moment in moments:
            for step in self._story.steps[played:moment]:
                disk.play(step)
            played = moment
            self.tally.moments += 1
            for state in states_at(disk, random.Random(f"{seed} {moment}"), torn):
                self.tally.states += 1
                try:
                    self._compare(await self._open(state), moment)
                except* Exception as group:  # a nursery wraps what goes wrong in the engine
                    raise Lost(f"after step {moment}, seed {seed}: {group.exceptions}") from group

    async def _open(self, state: State) -> Found:
        digest = hashlib.sha256()
        for name, content in sorted(state.items()):
            digest.update(b"%s %d " % (name.encode(), len(content)))
            digest.update(content)
        key = digest.digest()
        if key not in self._seen:
            self.tally.distinct += 1
            self._scratch.mkdir()
            try:
                lay_down(state, self._scratch)
                self._seen[key] = await self._examine(self._scratch / self._name)
            finally:
                shutil.rmtree(self._scratch)
        return self._seen[key]

    async def _examine(self, path: Path) -> Found:
        async with open_engine(path, limits=LIMITS) as running:
            store = running.store
            found = await self._found(running)
            for fact in self._story.heads_at(found.revision).values():
                await self._check_handle(running, fact)
            live = (await store.list(ALICE)).total
            receipt = await store.mint(ALICE, kind="after", document={"l": []})
            assert receipt.info.revision == found.revision + 1, "the next revision"
            assert (await store.list(ALICE)).total == live + 1, "the count of handles"
        verdict = verify_alone(path)
        assert verdict.is_sound, verdict.problems
        return found

    async def _found(self, running: RunningEngine) -> Found:
        backend, story = running.backend, self._story
        revision = (await running.store.status()).revision
        tokens = [token for token in story.tokens if await backend.recall("agent", "alice", token)]
        requests = [
            name for name in story.requests if await backend.recall_request("agent", "alice", name, after=0.0)
        ]
        known = [story.tokens[token] for token in tokens] + [story.requests[name] for name in requests]
        assert all(kept.revision <= revision for kept in known), "an answer without its change"
        trash = await running.store.trash(ALICE)
        return Found(
            revision, frozenset(item.info.handle for item in trash), frozenset(tokens), frozenset(requests)
        )

    async def _check_handle(self, running: RunningEngine, fact: Fact) -> None:
        store = running.store
        if fact.document is None:
            with contextlib.suppress(HandleNotFound):
                await store.load(ALICE, fact.handle)
                raise Lost(f"{fact.handle} was taken away and is there")
            return
        try:
            snapshot = await store.load(ALICE, fact.handle)
        except HandleExpired:
            if not fact.may_expire:
                raise
            return
        except McpStateError as error:
            raise Lost(f"{fact.handle} version {fact.version}: {error}") from error
        info = snapshot.info
        assert (info.version, info.revision, info.title) == (fact.version, fact.revision, fact.title)
        assert snapshot.document == fact.document, fact.handle
        for older in self._older(fact):
            try:
                snapshot = await store.load(ALICE, fact.handle, version=older.version)
            except HistoryCompacted:
                assert older.version < fact.version - LIMITS.history_changes, "folded too early"
            else:
                assert snapshot.document == older.document, (older.handle, older.version)

    def _older(self, fact: Fact) -> list[Fact]:
        """Return some earlier versions of a handle: the last one, and a few before it."""
        earlier = [
            older
            for older in self._story.facts
            if older.handle == fact.handle and older.version < fact.version and older.document is not None
        ]
        return sorted(earlier, key=lambda older: older.version, reverse=True)[::5]

    def _compare(self, found: Found, moment: int) -> None:
        story = self._story
        acknowledged, begun = story.acknowledged_at(moment), story.begun_at(moment)
        if not acknowledged <= found.revision <= begun:
            raise Lost(
                f"revision {found.revision} is there, {acknowledged} was acknowledged and {begun} begun"
            )
        answers: list[tuple[object, bool, Kept]] = [
            *((token, token in found.tokens, kept) for token, kept in story.tokens.items()),
            *((name, name in found.requests, kept) for name, kept in story.requests.items()),
        ]
        for name, is_there, kept in answers:
            is_due = kept.acknowledged <= moment and (kept.released is None or kept.released > moment)
            if is_due and not is_there:
                raise Lost(f"the answer to {name} is gone")
        for handle, fact in story.heads_at(found.revision).items():
            emptied = story.emptied.get(handle)
            if fact.is_in_trash and (emptied is None or emptied.begun >= moment):
                assert handle in found.trash, f"{handle} is not in the trash"
            if emptied is not None and emptied.acknowledged <= moment:
                assert handle not in found.trash, f"{handle} is still in the trash"
