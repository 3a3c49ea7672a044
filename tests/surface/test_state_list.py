from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mcpstated.protocol.limits import Limits


async def test_a_list_tells_everything_but_the_content(desk: Any) -> None:
    handle = await desk.mint({"sources": [1, 2], "secret": {"password": "hunter2"}}, title="Zinc")
    listed = await desk.ok("state_list")
    (entry,) = listed["handles"]
    assert listed["total"] == 1
    assert "next_cursor" not in listed
    assert entry["handle"] == handle
    assert list(entry) == [
        "handle",
        "version",
        "kind",
        "title",
        "created_at",
        "updated_at",
        "expires_at",
        "last_writer",
        "size_bytes",
        "outline",
    ]
    assert "sources" in entry["outline"]
    assert "hunter2" not in json.dumps(listed)


async def test_the_latest_change_comes_first(desk: Any) -> None:
    handles = [await desk.mint({"l": []}) for _ in range(3)]
    await desk.ok("state_patch", handle=handles[1], ops=[{"op": "append", "path": "l", "value": 1}])
    listed = [entry["handle"] for entry in (await desk.ok("state_list"))["handles"]]
    assert listed == [handles[1], handles[2], handles[0]]


@pytest.mark.requirement("C28")
async def test_pages_meet_every_state_once(desk: Any) -> None:
    made = [await desk.mint({"n": n}) for n in range(25)]
    met: list[str] = []
    cursor: dict[str, Any] = {}
    for expected in (10, 10, 5):
        page = await desk.ok("state_list", limit="10", **cursor)
        assert page["total"] == 25
        assert len(page["handles"]) == expected
        met += [entry["handle"] for entry in page["handles"]]
        cursor = {"cursor": page["next_cursor"]} if "next_cursor" in page else {}
    assert not cursor
    assert met == made[::-1]


async def test_kind_and_query_narrow_the_list(desk: Any) -> None:
    await desk.ok("state_save", kind="research", state={}, title="Zinc in rivers")
    await desk.ok("state_save", kind="shopping", state={}, title="Zinc nails")
    assert (await desk.ok("state_list", kind="research"))["total"] == 1
    assert (await desk.ok("state_list", query="zinc"))["total"] == 2
    assert (await desk.ok("state_list", query="ZINC rivers"))["total"] == 1
    assert (await desk.ok("state_list", query="copper"))["total"] == 0


async def test_a_limit_or_cursor_that_cannot_be_one_is_refused(desk: Any) -> None:
    for limit in (0, -1, 201, 10**20, "many", True):
        error = await desk.refused("state_list", limit=limit)
        assert (error["code"], error["field"]) == ("invalid_input", "limit"), limit
    for cursor in ("", "x", "ÿ", "null", "9" * 10_000):
        error = await desk.refused("state_list", cursor=cursor)
        assert (error["code"], error["field"]) == ("invalid_input", "cursor"), cursor


@pytest.fixture
def limits() -> Limits:
    return Limits(reply_budget_bytes=4_000)


@pytest.mark.requirement("C28", "P6")
async def test_a_page_is_cut_to_the_reply_budget_and_goes_on(desk: Any) -> None:
    """Long titles and outlines would make a page of a legal length too long for a model."""
    made = [await desk.mint({f"key {n}": n}, title="ü" * 200) for n in range(20)]
    met: list[str] = []
    cursor: dict[str, Any] = {}
    pages = 0
    while True:
        result = await desk.call("state_list", {"limit": 20, **cursor})
        page = result["structuredContent"]
        assert len(json.dumps(page["handles"], ensure_ascii=False, separators=(",", ":")).encode()) <= 4_100
        met += [entry["handle"] for entry in page["handles"]]
        pages += 1
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert met == made[::-1]
    assert 1 < pages < 20


@pytest.mark.requirement("C21", "C24")
async def test_an_expired_state_is_not_listed(desk: Any, timer: Any) -> None:
    """And a very short time to live does not break the list for the others."""
    lasting = await desk.mint({})
    await desk.mint({}, ttl_days=1e-9)
    await desk.mint({}, ttl_days=1)
    timer.now += 2 * 86_400
    listed = await desk.ok("state_list")
    assert [entry["handle"] for entry in listed["handles"]] == [lasting]
    assert listed["total"] == 1


@pytest.mark.requirement("P5")
async def test_each_user_has_a_list_of_their_own(open_desk: Callable[..., Awaitable[Any]]) -> None:
    ann, bob = await open_desk(), await open_desk(user="bob")
    await ann.mint({})
    mine = await bob.mint({})
    assert [entry["handle"] for entry in (await bob.ok("state_list"))["handles"]] == [mine]
