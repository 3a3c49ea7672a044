"""Compare-and-append, as the engine relies on it: each backend has to do this."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from mcpstated.daemon.backends.interface import Applied, Backend, Conflict, Key, NewChange, Repeated
from mcpstated.daemon.backends.sqlite import SQLiteBackend
from mcpstated.protocol.errors import BackendError
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.store import CallToken, HandleId, HandleInfo, Revision, Version


@pytest.fixture(params=[SQLiteBackend], ids=["sqlite"])
async def backend(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Backend]:
    """An open, empty store."""
    made: Backend = request.param(path, limits=Limits())
    await made.open()
    yield made
    await made.aclose()


def change(name: str, base: int, *, body: str = "{}", token: CallToken | None = None) -> NewChange:
    """Return a change of alice's handle from a version to the next."""
    info = HandleInfo(
        HandleId(name), "a", None, Version(base + 1), Revision(0), 1.0, 2.0 + base, None, "w", 2, "empty"
    )
    return NewChange(
        key=Key("agent", "alice", HandleId(name)),
        base=base,
        action="patch" if base else "mint",
        body=body,
        info=info,
        ttl_days=None,
        words=name,
        document=None if base else "{}",
        token=token,
        receipt=None if token is None else f"receipt {token.sequence}",
    )


@pytest.mark.requirement("P3")
async def test_changes_on_the_newest_version_get_rising_revisions(backend: Backend) -> None:
    """P3: in the order of the batch, also where one builds on another of the same batch."""
    batch = [change("x", 0), change("y", 0), change("x", 1), change("x", 2)]
    assert await backend.append(batch, {}) == [Applied(1), Applied(2), Applied(3), Applied(4)]
    stored = await backend.load(change("x", 0).key)
    assert stored is not None
    assert (stored.head.info.version, stored.head.info.revision) == (3, 4)
    assert [it.version for it in stored.changes] == [2, 3]
    assert await backend.count("agent", "alice") == (2, 4)


@pytest.mark.requirement("P3")
@pytest.mark.parametrize("base", [0, 1, 3, 99])
async def test_a_change_on_another_version_is_a_conflict_and_leaves_no_trace(
    backend: Backend, base: int
) -> None:
    """P3: the others of its batch are applied all the same."""
    await backend.append([change("x", 0), change("x", 1)], {})
    wrong = change("x", base, body="WRONG", token=CallToken(b"s" * 16, 1))
    assert await backend.append([wrong, change("y", 0)], {}) == [Conflict(), Applied(3)]
    stored = await backend.load(wrong.key)
    assert stored is not None
    assert stored.head.info.version == 2
    assert all(it.body != "WRONG" for it in stored.changes)
    assert await backend.recall("agent", "alice", CallToken(b"s" * 16, 1)) is None


@pytest.mark.requirement("P3")
async def test_what_builds_on_a_conflict_is_one_even_if_its_version_fits(backend: Backend) -> None:
    """P3: version 3 of the storage is not the version 3 that the second change was evaluated against."""
    await backend.append([change("x", 0), change("x", 1), change("x", 2)], {})
    built_on_another_3 = [change("x", 2, body="MINE"), change("x", 3, body="MINE")]
    assert await backend.append(built_on_another_3, {}) == [Conflict(), Conflict()]
    assert await backend.append([change("x", 3)], {}) == [Applied(4)]


@pytest.mark.requirement("P2")
async def test_a_token_that_was_applied_is_repeated_and_what_builds_on_it_conflicts(backend: Backend) -> None:
    """P2: with the receipt and the revision of the first time."""
    token = CallToken(b"s" * 16, 7)
    await backend.append([change("x", 0), change("x", 1, token=token)], {})
    again = [change("x", 2, token=token), change("x", 3), change("y", 0)]
    assert await backend.append(again, {}) == [Repeated(2, "receipt 7"), Conflict(), Applied(3)]
    assert await backend.recall("agent", "alice", token) == Repeated(2, "receipt 7")
    assert await backend.recall("agent", "bob", token) is None
    assert await backend.recall("agent", "alice", CallToken(b"s" * 16, 8)) is None


@pytest.mark.requirement("P3")
async def test_a_deleted_handle_takes_no_change_and_its_name_is_not_free(backend: Backend) -> None:
    """P3: a write that was evaluated before the delete must not bring it back."""
    await backend.append([change("x", 0)], {})
    assert await backend.append([replace(change("x", 1), action="delete")], {}) == [Applied(2)]
    for late in (change("x", 0), change("x", 1), change("x", 2), replace(change("x", 2), action="delete")):
        assert await backend.append([late], {}) == [Conflict()]
    assert await backend.load(change("x", 0).key) is None
    assert await backend.count("agent", "alice") == (0, 2)


@pytest.mark.requirement("P1")
async def test_a_batch_that_cannot_be_stored_stores_nothing(backend: Backend) -> None:
    """P1: all of it is rolled back, and the next batch works and takes the same revision."""
    unstorable = replace(change("y", 0), words=None)  # type: ignore[arg-type]
    with pytest.raises(BackendError):
        await backend.append([change("x", 0), unstorable], {})
    assert await backend.load(change("x", 0).key) is None
    assert await backend.append([change("x", 0)], {}) == [Applied(1)]


async def test_a_closed_backend_says_so_and_closes_twice(path: Path) -> None:
    """Closing is what every error path does, so it must not be an error itself."""
    backend = SQLiteBackend(path, limits=Limits())
    with pytest.raises(BackendError):
        await backend.append([change("x", 0)], {})
    await backend.open()
    await backend.aclose()
    await backend.aclose()
    with pytest.raises(BackendError):
        await backend.load(change("x", 0).key)
