"""Lists: pages that hold still while others write, filters, totals and cursors."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
import trio

from mcpstated.daemon.testing import RunningEngine, open_engine
from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import SetKey
from mcpstated.protocol.store import Caller, HandleInfo


async def all_pages(engine: RunningEngine, caller: Caller, *, limit: int, **filters: str) -> list[HandleInfo]:
    """Read a list to its end."""
    found: list[HandleInfo] = []
    cursor = None
    while True:
        page = await engine.store.list(caller, limit=limit, cursor=cursor, **filters)  # type: ignore[arg-type]
        assert len(page.handles) <= limit
        found.extend(page.handles)
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


async def mint_many(engine: RunningEngine, caller: Caller, number: int, kind: str = "a") -> list[str]:
    """Mint handles side by side and return their names."""
    names: list[str] = []

    async def mint(index: int) -> None:
        document = {"n": index}
        names.append(
            (await engine.store.mint(caller, kind=kind, document=document, title=f"No {index}")).info.handle
        )

    async with trio.open_nursery() as nursery:
        for index in range(number):
            nursery.start_soon(mint, index)
    return names


@pytest.mark.requirement("C28")
@pytest.mark.parametrize("limit", [1, 2, 7, 24, 25, 26, 200])
async def test_pages_of_any_size_give_each_handle_once_newest_change_first(
    engine: RunningEngine, alice: Caller, limit: int
) -> None:
    """C28: also where the last page is exactly full."""
    names = await mint_many(engine, alice, 25)
    await engine.store.patch(alice, names[3], [SetKey("", "n", -1)])
    found = await all_pages(engine, alice, limit=limit)
    assert sorted(info.handle for info in found) == sorted(names)
    assert found[0].handle == names[3]
    assert [info.revision for info in found] == sorted((info.revision for info in found), reverse=True)


@pytest.mark.requirement("C28")
async def test_paging_is_stable_while_others_write(engine: RunningEngine, alice: Caller) -> None:
    """C28: what does not change is met exactly once; what changes moves ahead of the cursor."""
    store = engine.store
    names = await mint_many(engine, alice, 30)
    seen: list[str] = []
    changed: set[str] = set()
    cursor = None
    for step in range(10):
        page = await store.list(alice, limit=4, cursor=cursor)
        seen.extend(info.handle for info in page.handles)
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
        victim = names[step * 3]
        changed.add(victim)
        await store.patch(alice, victim, [SetKey("", "n", -1 - step)])
        await store.mint(alice, kind="b", document={})
        await store.delete(alice, names[step * 3 + 1])
        changed.add(names[step * 3 + 1])
    quiet = [name for name in names if name not in changed]
    assert [seen.count(name) for name in quiet] == [1] * len(quiet)


@pytest.mark.requirement("C28")
async def test_totals_count_what_matches_on_all_pages(
    engine: RunningEngine, alice: Caller, bob: Caller
) -> None:
    """C28: of this user, this space and this filter only, without expired and deleted ones."""
    store = engine.store
    names = await mint_many(engine, alice, 5, kind="note")
    await mint_many(engine, alice, 3, kind="task")
    await mint_many(engine, bob, 4)
    await store.mint(Caller("alice", "app", space="app"), kind="note", document={})
    await store.touch(alice, names[0], ttl_days=0.5)
    await store.delete(alice, names[1])
    assert (await store.list(alice)).total == 7
    assert (await store.list(alice, limit=2)).total == 7
    assert (await store.list(alice, kind="note")).total == 4
    assert (await store.list(alice, kind="task")).total == 3
    assert (await store.list(alice, kind="none")).total == 0
    assert (await store.list(alice, query="no")).total == 7
    engine.time.pass_seconds(86_400)
    assert (await store.list(alice)).total == 6
    assert (await store.list(alice, kind="note")).total == 3
    assert {info.kind for info in await all_pages(engine, alice, limit=2, kind="task")} == {"task"}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {"Äpfel & Birnen", "100% of it", "under_score", None}),
        ("   ", {"Äpfel & Birnen", "100% of it", "under_score", None}),
        ("birnen", {"Äpfel & Birnen"}),
        ("BIRNEN äPFEL", {"Äpfel & Birnen"}),
        ("birnen 100%", set()),
        ("%", {"100% of it"}),
        ("_score", {"under_score"}),
        ("r_s", {"under_score"}),
        ("\\", set()),
        ("'", set()),
        ('"', set()),
        ("fruit", {"Äpfel & Birnen"}),
        ("strasse", {None}),
    ],
)
async def test_a_query_finds_words_in_handle_title_and_kind_whatever_their_case(
    engine: RunningEngine, alice: Caller, query: str, found: set[str | None]
) -> None:
    """No character of a query means anything but itself."""
    store = engine.store
    await store.mint(alice, kind="fruit", document={"birnen it": "%"}, title="Äpfel & Birnen")
    await store.mint(alice, kind="b", document={}, title="100% of it")
    await store.mint(alice, kind="c", document={}, title="under_score")
    await store.mint(alice, kind="strasse", document={})
    page = await store.list(alice, query=query)
    assert {info.title for info in page.handles} == found
    assert page.total == len(found)


async def test_a_query_finds_the_title_that_was_set_last(engine: RunningEngine, alice: Caller) -> None:
    """Searching is done in what is true now."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={}, title="Straße")).info.handle
    assert (await store.list(alice, query="STRASSE")).total == 1
    await store.save(alice, handle, document={}, expect_version=1, title="Weg")
    assert (await store.list(alice, query="straße")).total == 0
    assert (await store.list(alice, query=f"weg {handle[2:]}")).handles[0].handle == handle


async def test_a_cursor_of_another_list_is_refused(engine: RunningEngine, alice: Caller, bob: Caller) -> None:
    """Silently reading another filter's page would skip handles."""
    store = engine.store
    await mint_many(engine, alice, 3)
    await mint_many(engine, bob, 3)
    cursor = (await store.list(alice, limit=1)).next_cursor
    assert cursor is not None
    for call in (
        lambda: store.list(bob, cursor=cursor),
        lambda: store.list(Caller("alice", "w", space="app"), cursor=cursor),
        lambda: store.list(alice, cursor=cursor, kind="a"),
        lambda: store.list(alice, cursor=cursor, query="no"),
        lambda: store.list(alice, cursor=cursor[:-1]),
        lambda: store.list(alice, cursor=cursor + "A"),
        lambda: store.list(alice, cursor="A" * len(cursor)),
        lambda: store.list(alice, cursor="é"),
        lambda: store.list(alice, cursor=""),
        lambda: store.list(alice, cursor=7),  # type: ignore[arg-type]
        lambda: store.list(alice, cursor="x" * 100_000),
    ):
        with pytest.raises(InvalidInput) as caught:
            await call()
        assert caught.value.details == {"field": "cursor"}
    assert len((await store.list(alice, cursor=cursor, limit=2)).handles) == 2


@pytest.mark.requirement("P3")
async def test_a_load_after_a_list_never_returns_less_than_the_list_showed(
    engine: RunningEngine, alice: Caller
) -> None:
    """P3: the list reads the database, which may be a moment ahead of the heads."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"n": 0})).info.handle

    async def write() -> None:
        for index in range(1, 100):
            await store.patch(alice, handle, [SetKey("", "n", index)])

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            listed = 0
            while listed < 100:
                listed = (await store.list(alice)).handles[0].version
                assert (await store.load(alice, handle)).info.version >= listed


async def test_a_list_reads_no_document(path: Path, alice: Caller) -> None:
    """A page of many large documents is as light as its metadata."""
    limits = Limits(cache_bytes=0)
    async with open_engine(path, limits=limits) as running:
        for _ in range(3):
            await running.store.mint(alice, kind="a", document={"l": ["x" * 1000] * 900})
        before = (await running.store.status()).cached_documents
        page = await running.store.list(alice)
        assert [info.outline for info in page.handles] == ["l: list(900)"] * 3
        assert (await running.store.status()).cached_documents == before


def plan_of(path: Path, sql: str) -> str:
    """Return how SQLite would run a statement."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return " / ".join(str(row[3]) for row in db.execute("EXPLAIN QUERY PLAN " + sql))
    finally:
        db.close()


async def test_pages_are_read_in_order_and_totals_are_not_counted(path: Path, engine: RunningEngine) -> None:
    """The first page does not depend on how many there are, and a filter by kind reads no rows for it."""
    page = plan_of(
        path,
        "SELECT title FROM handles WHERE space = 'agent' AND user = 'alice' AND deleted_at IS NULL"
        " AND revision < 9 AND ('a' IS NULL OR kind = 'a') AND (expires_at IS NULL OR expires_at > 5)"
        " ORDER BY revision DESC",
    )
    filtered = plan_of(
        path,
        "SELECT count(*) FROM handles WHERE space = 'agent' AND user = 'alice' AND deleted_at IS NULL"
        " AND ('a' IS NULL OR kind = 'a') AND (expires_at IS NULL OR expires_at > 5)",
    )
    expired = plan_of(path, "SELECT count(*) FROM handles WHERE expires_at <= 5 AND deleted_at IS NULL")
    assert "handles_by_revision" in page
    assert "TEMP B-TREE" not in page
    assert "COVERING INDEX handles_by_revision" in filtered
    assert "handles_by_expiry" in expired
