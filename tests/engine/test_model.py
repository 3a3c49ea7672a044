"""The engine against a model that anybody can check by eye: a dictionary with a list of versions each."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mcpstated.daemon.testing import ManualTime, RunningEngine, open_engine
from mcpstated.protocol.documents import Document, Json, dump
from mcpstated.protocol.errors import HandleExpired, HandleNotFound, StaleWrite
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append, DelKey, Operation, SetKey
from mcpstated.protocol.store import Caller

T = TypeVar("T")
DAY = 86_400.0
KEYS = ["a", "b", "l", "ü/~."]

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(st.sampled_from(KEYS), values, max_size=4)
users = st.sampled_from(["alice", "bob"])


@dataclass
class Modelled:
    """What the model knows of one handle."""

    user: str
    versions: list[Document]
    expires_at: float | None = None
    oldest: int = 1
    is_deleted: bool = False


@dataclass
class Portal:
    """Runs an engine in a thread of its own, and calls into it from the test's."""

    directory: Path
    time: ManualTime
    limits: Limits
    running: RunningEngine | None = None
    _ready: threading.Event = field(default_factory=threading.Event)
    _token: trio.lowlevel.TrioToken | None = None
    _stop: trio.Event | None = None
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the store."""
        self._ready.clear()
        self._thread = threading.Thread(target=trio.run, args=(self._main,))
        self._thread.start()
        assert self._ready.wait(20)

    def stop(self) -> None:
        """Close it as the daemon does."""
        assert self._token is not None
        assert self._stop is not None
        assert self._thread is not None
        self._token.run_sync_soon(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run one call in the engine's loop and return what it returns."""

        async def bounded() -> T:
            with trio.fail_after(20):
                return await work()

        return trio.from_thread.run(bounded, trio_token=self._token)

    async def _main(self) -> None:
        async with open_engine(self.directory / "state.db", limits=self.limits, time=self.time) as running:
            self.running = running
            self._token = trio.lowlevel.current_trio_token()
            self._stop = trio.Event()
            self._ready.set()
            await self._stop.wait()


class EngineMachine(RuleBasedStateMachine):
    """Makes random calls to the engine and to the model."""

    handles = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, Modelled] = {}
        self.folder = TemporaryDirectory(prefix="mcpstated-model-")
        self.time = ManualTime()

    @initialize(
        cache_bytes=st.sampled_from([0, 10_000_000]),
        history_changes=st.sampled_from([3, 1_000]),
    )
    def open(self, cache_bytes: int, history_changes: int) -> None:
        """Open the store with or without room in memory, with a short history or a long one."""
        limits = Limits(cache_bytes=cache_bytes, history_changes=history_changes)
        self.portal = Portal(Path(self.folder.name), self.time, limits)
        self.portal.start()

    def teardown(self) -> None:
        """Close it."""
        if hasattr(self, "portal"):
            with suppress(AssertionError):
                self.portal.stop()
        self.folder.cleanup()

    @property
    def store(self):  # type: ignore[no-untyped-def]
        """The engine."""
        assert self.portal.running is not None
        return self.portal.running.store

    def state_of(self, handle: str) -> str:
        """Return `live`, `expired` or `gone`."""
        known = self.model[handle]
        if known.is_deleted:
            return "gone"
        if known.expires_at is not None and known.expires_at <= self.time.wall:
            return "expired"
        return "live"

    def write(self, handle: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """Make a call that needs a live handle; None if it had to fail, and did with the right error."""
        state = self.state_of(handle)
        if state == "live":
            return self.portal.call(work)
        with pytest.raises(HandleExpired if state == "expired" else HandleNotFound):
            self.portal.call(work)
        return None

    def caller(self, handle: str) -> Caller:
        """Return the owner of a handle."""
        return Caller(self.model[handle].user, "model")

    @rule(target=handles, user=users, document=documents, ttl=st.none() | st.sampled_from([0.5, 2.0]))
    def mint(self, user: str, document: Document, ttl: float | None) -> str:
        """A new handle."""
        receipt = self.portal.call(
            lambda: self.store.mint(Caller(user, "model"), kind="m", document=document, ttl_days=ttl)
        )
        expires_at = None if ttl is None else self.time.wall + ttl * DAY
        self.model[receipt.info.handle] = Modelled(user, [document], expires_at)
        return str(receipt.info.handle)

    @rule(handle=handles, document=documents, offset=st.sampled_from([0, 0, 0, -1, 1]))
    def save(self, handle: str, document: Document, offset: int) -> None:
        """The whole document, with the right version or a wrong one."""
        known = self.model[handle]
        version = len(known.versions) + offset

        def work() -> Awaitable[object]:
            return self.store.save(  # type: ignore[no-any-return]
                self.caller(handle), handle, document=document, expect_version=version
            )

        if self.state_of(handle) == "live" and offset != 0:
            with pytest.raises(StaleWrite):
                self.portal.call(work)
        elif self.write(handle, work) is not None and dump(known.versions[-1]) != dump(document):
            known.versions.append(document)

    @rule(handle=handles, key=st.sampled_from(KEYS), value=values)
    def set_key(self, handle: str, key: str, value: Json) -> None:
        """One key."""
        newest = self.model[handle].versions[-1]
        self.patch(handle, SetKey("", key, value), {**newest, key: value})

    @rule(handle=handles, key=st.sampled_from(KEYS))
    def del_key(self, handle: str, key: str) -> None:
        """One key less, if it is there."""
        newest = self.model[handle].versions[-1]
        self.patch(handle, DelKey("", key), {name: value for name, value in newest.items() if name != key})

    @rule(handle=handles, value=values)
    def append(self, handle: str, value: Json) -> None:
        """One item more, where there is a list."""
        newest = self.model[handle].versions[-1]
        items = newest.get("l")
        if isinstance(items, list):
            self.patch(handle, Append("l", value), {**newest, "l": [*items, value]})

    def patch(self, handle: str, operation: Operation, expected: Document) -> None:
        """Apply an operation and note what must come out."""
        known = self.model[handle]
        receipt = self.write(handle, lambda: self.store.patch(self.caller(handle), handle, [operation]))
        if receipt is not None:
            if receipt.is_changed:
                known.versions.append(expected)
            else:
                assert {**known.versions[-1]} == expected
            assert receipt.info.version == len(known.versions)

    @rule(handle=handles, ttl=st.none() | st.sampled_from([0.25, 3.0]))
    def touch(self, handle: str, ttl: float | None) -> None:
        """Another end of life."""
        known = self.model[handle]
        receipt = self.write(handle, lambda: self.store.touch(self.caller(handle), handle, ttl_days=ttl))
        if receipt is not None and not (ttl is None and known.expires_at is None):
            known.versions.append(known.versions[-1])
            known.expires_at = None if ttl is None else self.time.wall + ttl * DAY

    @rule(handle=handles)
    def delete(self, handle: str) -> None:
        """The end; expired or not."""
        known = self.model[handle]
        if known.is_deleted:
            with pytest.raises(HandleNotFound):
                self.portal.call(lambda: self.store.delete(self.caller(handle), handle))
        else:
            assert self.portal.call(lambda: self.store.delete(self.caller(handle), handle)).is_deleted
            known.is_deleted = True

    @rule(handle=handles)
    def intrude(self, handle: str) -> None:
        """Another user sees nothing."""
        stranger = "alice" if self.model[handle].user == "bob" else "bob"
        with pytest.raises(HandleNotFound):
            self.portal.call(lambda: self.store.load(Caller(stranger, "model"), handle))

    @rule(days=st.sampled_from([0.1, 1.0, 40.0]))
    def wait(self, days: float) -> None:
        """Time passes."""
        self.time.pass_seconds(days * DAY)

    @rule()
    def sweep(self) -> None:
        """What expired is gone, and history may have become shorter."""
        self.portal.call(self.store.sweep)
        for handle, known in self.model.items():
            known.is_deleted = known.is_deleted or self.state_of(handle) == "expired"

    @precondition(lambda self: len(self.model) > 0)
    @rule()
    def reopen(self) -> None:
        """The daemon is restarted."""
        self.portal.stop()
        self.portal.start()

    @invariant()
    def lists_show_what_lives(self) -> None:
        """Every page, of both users, against the model."""
        if not hasattr(self, "portal"):
            return
        for user in ("alice", "bob"):
            live = {h for h, known in self.model.items() if known.user == user and self.state_of(h) == "live"}
            page = self.portal.call(lambda user=user: self.store.list(Caller(user, "model"), limit=200))
            assert {info.handle for info in page.handles} == live
            assert page.total == len(live)
            for info in page.handles:
                assert info.version == len(self.model[info.handle].versions)

    @rule(handle=handles, data=st.data())
    def read(self, handle: str, data: st.DataObject) -> None:
        """The newest, and any older version that is kept."""
        known = self.model[handle]
        snapshot = self.write(handle, lambda: self.store.load(self.caller(handle), handle))
        if snapshot is None:
            return
        assert dump(snapshot.document) == dump(known.versions[-1])
        assert snapshot.info.version == len(known.versions)
        assert snapshot.info.size_bytes == len(dump(snapshot.document).encode())
        assert snapshot.info.expires_at == known.expires_at
        if (
            self.portal.limits.history_changes > len(known.versions)
            and self.time.wall < 1_700_000_000 + 30 * DAY
        ):
            version = data.draw(st.integers(1, len(known.versions)))
            old = self.portal.call(lambda: self.store.load(self.caller(handle), handle, version=version))
            assert dump(old.document) == dump(known.versions[version - 1])


@pytest.mark.requirement("P1", "P3", "P5")
def test_the_engine_does_what_the_model_does() -> None:
    """P1, P3, P5: over random calls, restarts, sweeps and time, with documents in memory and without."""
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        EngineMachine,
        settings=settings(
            max_examples=20,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
