"""The contract of the store: what each method does, with documents in memory and without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mcpstated.daemon.backends.schema import SCHEMA_VERSION
from mcpstated.daemon.testing import RunningEngine, open_engine
from mcpstated.protocol.documents import Document, dump
from mcpstated.protocol.errors import (
    HandleNotFound,
    InvalidInput,
    McpStateError,
    PatchError,
    StaleWrite,
    StateTooLarge,
)
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import Append, DelKey, Merge, SetKey
from mcpstated.protocol.store import Caller, Touched

DOCUMENT: Document = {
    "title": "Paper",
    "sources": [{"u": "é", "n": 1}],
    "f": 1.0,
    "z": -0.0,
    "deep": {"a": [1]},
}


async def test_mint_makes_version_1_with_all_its_metadata(either: RunningEngine, alice: Caller) -> None:
    """The receipt says what a load says."""
    receipt = await either.store.mint(alice, kind="research", document=DOCUMENT, ttl_days=7, title="My paper")
    info = receipt.info
    assert re.fullmatch(r"research_[a-z2-9]{8}", info.handle)
    assert receipt.is_changed
    assert (info.version, info.kind, info.title) == (1, "research", "My paper")
    assert info.last_writer == alice.writer
    assert info.created_at == info.updated_at == either.time.wall
    assert info.expires_at == either.time.wall + 7 * 86_400
    assert info.size_bytes == len(dump(DOCUMENT).encode())
    assert "sources: list(1)" in info.outline
    snapshot = await either.store.load(alice, info.handle)
    assert snapshot.info == info
    assert dump(snapshot.document) == dump(DOCUMENT)


async def test_save_replaces_the_document_and_keeps_what_it_does_not_name(
    either: RunningEngine, alice: Caller, bob: Caller
) -> None:
    """Title and expiry stay unless they are given; None clears them."""
    store = either.store
    minted = (await store.mint(alice, kind="a", document=DOCUMENT, ttl_days=7, title="T")).info
    either.time.pass_seconds(60)
    writer = Caller("alice", bob.writer)
    saved = await store.save(writer, minted.handle, document={"new": True}, expect_version=1)
    assert (saved.info.version, saved.info.title, saved.info.expires_at) == (2, "T", minted.expires_at)
    assert (saved.info.created_at, saved.info.updated_at) == (minted.created_at, minted.created_at + 60)
    assert saved.info.last_writer == bob.writer
    assert (await store.load(alice, minted.handle)).document == {"new": True}
    cleared = await store.save(
        alice, minted.handle, document={"new": True}, expect_version=2, ttl_days=None, title=None
    )
    assert (cleared.info.version, cleared.info.title, cleared.info.expires_at) == (3, None, None)
    assert (await store.load(alice, minted.handle)).info == cleared.info


async def test_patch_applies_to_the_newest_document_and_tells_what_it_touched(
    either: RunningEngine, alice: Caller
) -> None:
    """P8's other half: the reply needs no document."""
    store = either.store
    handle = (await store.mint(alice, kind="a", document=DOCUMENT)).info.handle
    receipt = await store.patch(
        alice, handle, [Append("sources", {"u": "x"}), SetKey("", "done", value=True), DelKey("deep", "a")]
    )
    assert receipt.touched == (
        Touched("append", "sources", 2),
        Touched("set_key", "", 6),
        Touched("del_key", "deep", 0),
    )
    loaded = await store.load(alice, handle)
    assert loaded.info == receipt.info
    assert dump(loaded.document) == dump(
        {**DOCUMENT, "sources": [{"u": "é", "n": 1}, {"u": "x"}], "deep": {}, "done": True}
    )
    assert loaded.info.size_bytes == len(dump(loaded.document).encode())


async def test_a_patch_is_applied_whole_or_not_at_all(either: RunningEngine, alice: Caller) -> None:
    """A bad third operation leaves version and document alone and is named."""
    store = either.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    with pytest.raises(PatchError) as caught:
        await store.patch(alice, handle, [Append("l", 1), Append("l", 2), Append("nope", 3)])
    assert (caught.value.details["index"], caught.value.details["reason"]) == (2, "path_not_found")
    loaded = await store.load(alice, handle)
    assert (loaded.info.version, loaded.document) == (1, {"l": []})


async def test_delete_hides_the_handle_from_every_method(either: RunningEngine, alice: Caller) -> None:
    """A deleted handle is never made again by a late writer."""
    store = either.store
    handle = (await store.mint(alice, kind="a", document={"l": []})).info.handle
    receipt = await store.delete(alice, handle)
    assert receipt.is_deleted
    assert (receipt.info.handle, receipt.info.version) == (handle, 2)
    for call in (
        lambda: store.load(alice, handle),
        lambda: store.load(alice, handle, version=1),
        lambda: store.save(alice, handle, document={}, expect_version=1),
        lambda: store.save(alice, handle, document={}, expect_version=2),
        lambda: store.patch(alice, handle, [Append("l", 1)]),
        lambda: store.touch(alice, handle, ttl_days=1),
        lambda: store.delete(alice, handle),
    ):
        with pytest.raises(HandleNotFound) as caught:
            await call()
        assert caught.value.details == {"handle": handle}
    assert (await store.list(alice)).total == 0
    assert (await store.status()).handles == 0


async def test_touch_moves_the_end_of_life(either: RunningEngine, alice: Caller) -> None:
    """The time to live counts from the touch; None is for ever."""
    store = either.store
    handle = (await store.mint(alice, kind="a", document={}, ttl_days=1)).info.handle
    either.time.pass_seconds(3_600)
    touched = await store.touch(alice, handle, ttl_days=1)
    assert touched.info.expires_at == either.time.wall + 86_400
    assert touched.info.version == 2
    forever = await store.touch(alice, handle, ttl_days=None)
    assert (forever.info.expires_at, forever.info.version) == (None, 3)
    assert (await store.load(alice, handle)).info == forever.info


@pytest.mark.requirement("P6")
async def test_a_document_beyond_the_limit_is_refused_by_mint_save_and_patch(
    path: Path, alice: Caller
) -> None:
    """P6: one limit, one error, with both sizes, and nothing is stored."""
    async with open_engine(path, limits=Limits(max_state_bytes=100)) as running:
        store = running.store
        fits: Document = {"k": "x" * 92}
        handle = (await store.mint(alice, kind="a", document=fits)).info.handle
        too_large: Document = {"k": "x" * 93}
        for call in (
            lambda: store.mint(alice, kind="a", document=too_large),
            lambda: store.save(alice, handle, document=too_large, expect_version=1),
            lambda: store.patch(alice, handle, [SetKey("", "k", "x" * 93)]),
        ):
            with pytest.raises(StateTooLarge) as caught:
                await call()
            assert caught.value.details == {"size_bytes": 101, "limit_bytes": 100}
        assert (await store.load(alice, handle)).info.version == 1
        assert (await store.list(alice)).total == 1


@pytest.mark.parametrize(
    ("field", "method", "arguments"),
    [
        ("kind", "mint", {"kind": "Bad Kind", "document": {}}),
        ("state", "mint", {"kind": "a", "document": [1]}),
        ("state", "mint", {"kind": "a", "document": {"a": float("nan")}}),
        ("state", "mint", {"kind": "a", "document": {"a": "\ud800"}}),
        ("state", "save", {"document": {1: 2}, "expect_version": 1}),
        ("title", "mint", {"kind": "a", "document": {}, "title": "x" * 201}),
        ("title", "save", {"document": {}, "expect_version": 1, "title": 3}),
        ("handle", "load", {"handle": ""}),
        ("handle", "delete", {"handle": "x" * 201}),
        ("expect_version", "save", {"document": {}, "expect_version": True}),
        ("expect_version", "save", {"document": {}, "expect_version": "1"}),
        ("version", "load", {"version": 2}),
        ("version", "load", {"version": 0}),
        ("version", "load", {"version": -1}),
        ("user", "load", {"caller": Caller("", "w")}),
        ("writer", "delete", {"caller": Caller("alice", "w" * 201)}),
        ("limit", "list", {"limit": 0}),
        ("limit", "list", {"limit": 201}),
        ("kind", "list", {"kind": ""}),
        ("cursor", "list", {"cursor": "nonsense"}),
        ("query", "list", {"query": "x" * 1_001}),
        ("query", "list", {"query": "\ud800"}),
    ],
)
async def test_an_argument_out_of_range_is_named_and_changes_nothing(
    engine: RunningEngine, alice: Caller, field: str, method: str, arguments: dict[str, object]
) -> None:
    """The interface promises InvalidInput with the field, whoever calls it."""
    handle = (await engine.store.mint(alice, kind="a", document={"l": []})).info.handle
    needed = {"caller": alice} if method in ("mint", "list") else {"caller": alice, "handle": handle}
    with pytest.raises(InvalidInput) as caught:
        await getattr(engine.store, method)(**{**needed, **arguments})
    assert caught.value.details["field"] == field
    assert (await engine.store.load(alice, handle)).info.version == 1


async def test_a_save_that_expects_another_version_changes_nothing(
    either: RunningEngine, alice: Caller
) -> None:
    """C14 in short; what the conflict says is tested by itself."""
    store = either.store
    handle = (await store.mint(alice, kind="a", document={"n": 1})).info.handle
    for expected in (0, 2, 99):
        with pytest.raises(StaleWrite):
            await store.save(alice, handle, document={"n": 2}, expect_version=expected)
    assert (await store.load(alice, handle)).document == {"n": 1}


async def test_errors_are_all_of_the_one_list(either: RunningEngine, alice: Caller) -> None:
    """The interface raises McpStateError subclasses only, with a payload that can be sent."""
    store = either.store
    handle = (await store.mint(alice, kind="a", document={"n": 1})).info.handle
    for call in (
        lambda: store.load(alice, "a_zzzzzzzz"),
        lambda: store.save(alice, handle, document={"n": 2}, expect_version=7),
        lambda: store.patch(alice, handle, [Merge({"a": 1}, path="n")]),
    ):
        with pytest.raises(McpStateError) as caught:
            await call()
        dump(caught.value.to_payload())  # type: ignore[arg-type]
        assert caught.value.message.endswith((".", "version."))


async def test_status_counts_what_is_there(engine: RunningEngine, alice: Caller, bob: Caller) -> None:
    """`status` shows users what the daemon holds."""
    before = await engine.store.status()
    assert (before.revision, before.handles, before.cached_documents) == (0, 0, 0)
    await engine.store.mint(alice, kind="a", document={"n": 1})
    handle = (await engine.store.mint(bob, kind="a", document={"n": 1})).info.handle
    await engine.store.patch(bob, handle, [SetKey("", "n", 2)])
    after = await engine.store.status()
    assert (after.revision, after.handles, after.cached_documents) == (3, 2, 2)
    assert after.size_bytes > 0
    assert after.cache_bytes > 0
    assert after.path.endswith("state.db")
    assert after.schema_version == SCHEMA_VERSION
    assert re.fullmatch(r"3\.\d+\.\d+", after.sqlite_version)
