from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

ODD = {"a/b": 1, "~1": 2, "": 3, "a.b": {"c": 4}, "0": {"-": 5}, "-": [6, {"x": 7}], "zürich": {"ß": 8}}


async def test_a_load_answers_document_and_metadata(desk: Any) -> None:
    handle = await desk.mint({"a": [1, 2]}, title="Zinc")
    loaded = await desk.ok("state_load", handle=handle)
    assert loaded["state"] == {"a": [1, 2]}
    assert loaded["version"] == 1
    assert list(loaded)[:3] == ["ok", "handle", "version"]
    assert {
        "kind",
        "title",
        "created_at",
        "updated_at",
        "expires_at",
        "last_writer",
        "size_bytes",
    } <= loaded.keys()
    assert "truncated" not in loaded
    assert "path" not in loaded


PARTS: list[tuple[str, Any]] = [
    ("/a~1b", 1),
    ("/~01", 2),
    ("/", 3),
    ("/a.b/c", 4),
    ("/a.b", {"c": 4}),
    ("0.-", 5),
    ("/0/-", 5),
    ("/-/0", 6),
    ("/-/1/x", 7),
    ("zürich.ß", 8),
]


@pytest.mark.requirement("C28", "C29")
async def test_a_path_reaches_its_part(desk: Any) -> None:
    handle = await desk.mint(ODD)
    for path, value in PARTS:
        loaded = await desk.ok("state_load", handle=handle, path=path)
        assert loaded["state"] == value
        assert loaded["path"] == path


async def test_a_part_that_is_null_is_null(desk: Any) -> None:
    """Null is a value here; it must not vanish on the way out."""
    handle = await desk.mint({"a": None})
    assert "state" in await desk.ok("state_load", handle=handle, path="a")
    assert (await desk.ok("state_load", handle=handle, path="a"))["state"] is None


async def test_an_empty_path_is_the_whole_document(desk: Any) -> None:
    handle = await desk.mint({"a": 1})
    assert (await desk.ok("state_load", handle=handle, path=""))["state"] == {"a": 1}


@pytest.mark.requirement("C29")
async def test_a_path_that_leads_nowhere_is_refused_by_name(desk: Any) -> None:
    handle = await desk.mint(ODD)
    for path in ("b", "/b", "a.c", "/-/2", "/-/-1", "/-/1000000000", "/-/01", "/-/-", "a.b.c", "/~2"):
        error = await desk.refused("state_load", handle=handle, path=path)
        assert (error["code"], error["field"]) == ("invalid_input", "path"), path


@pytest.mark.requirement("C28")
async def test_a_document_above_the_budget_comes_as_an_outline(desk: Any) -> None:
    """A hint instead of a flood: 500 KB would fill a model's context."""
    state = {"notes": ["n" * 1000] * 500, "profile": {"name": "Ann", "tags": ["t"] * 3}}
    handle = await desk.mint(state)
    result = await desk.call("state_load", {"handle": handle})
    loaded = result["structuredContent"]
    assert loaded["truncated"] is True
    assert "state" not in loaded
    assert "path" in loaded["hint"]
    assert len(json.dumps(result)) < 20_000
    paths = {part["path"]: part for part in loaded["outline"]["parts"]}
    assert paths["/notes"]["items"] == 500
    assert paths["/profile"]["keys"] == 2
    for path in ("/notes/1", "/profile/name"):
        assert (await desk.ok("state_load", handle=handle, path=path))["state"]


@pytest.mark.requirement("C28")
async def test_a_part_above_the_budget_comes_as_an_outline_of_that_part(desk: Any) -> None:
    """Its paths lead from the root, so that they can be given back as they are."""
    state = {"big": {"a/b": ["x" * 100] * 50, "t": "y" * 5000}}
    handle = await desk.mint(state)
    for path, some_part in (("big", "/big/a~1b"), ("/big/a~1b", "/big/a~1b/0"), ("big.t", "/big/t")):
        loaded = await desk.ok("state_load", handle=handle, path=path, max_bytes=1000)
        assert loaded["truncated"] is True
        assert loaded["path"] == path
        parts = [part["path"] for part in loaded["outline"]["parts"]]
        assert some_part in parts
        assert all(part.startswith("/big/") for part in parts)
        assert (await desk.ok("state_load", handle=handle, path=some_part))["state"]


@pytest.mark.requirement("C28")
async def test_the_caller_may_raise_the_budget(desk: Any) -> None:
    state = {"t": "x" * 200_000}
    handle = await desk.mint(state)
    assert "state" not in await desk.ok("state_load", handle=handle)
    for budget in (200_100, "1048576", 10**9):
        assert (await desk.ok("state_load", handle=handle, max_bytes=budget))["state"] == state


async def test_the_budget_is_counted_in_bytes_of_the_compact_document(desk: Any) -> None:
    handle = await desk.mint({"t": "é"})
    assert "state" in await desk.ok("state_load", handle=handle, max_bytes=len('{"t":"é"}'.encode()))
    assert "state" not in await desk.ok("state_load", handle=handle, max_bytes=len('{"t":"é"}'.encode()) - 1)


async def test_a_budget_that_is_none_is_refused(desk: Any) -> None:
    handle = await desk.mint({})
    for max_bytes in (0, -1, "x", 1.5, True):
        error = await desk.refused("state_load", handle=handle, max_bytes=max_bytes)
        assert (error["code"], error["field"]) == ("invalid_input", "max_bytes"), max_bytes


@pytest.mark.requirement("C35", "P5")
async def test_another_user_finds_nothing(open_desk: Callable[..., Awaitable[Any]]) -> None:
    """A foreign handle answers exactly as one that never was."""
    ann, bob = await open_desk(), await open_desk(user="bob")
    handle = await ann.mint({"secret": 1})
    other = handle[:-1] + ("a" if handle[-1] != "a" else "b")
    assert (await bob.ok("state_list"))["total"] == 0
    calls: list[tuple[str, dict[str, Any]]] = [
        ("state_load", {}),
        ("state_save", {"state": {}, "expect_version": 1}),
        ("state_save", {"state": {}}),
        ("state_patch", {"ops": [{"op": "append", "path": "l", "value": 1}]}),
        ("state_touch", {}),
        ("state_delete", {}),
    ]
    for tool, arguments in calls:
        foreign = await bob.refused(tool, handle=handle, **arguments)
        random = await bob.refused(tool, handle=other, **arguments)
        assert json.dumps(foreign).replace(handle, "H") == json.dumps(random).replace(other, "H")
        assert foreign["code"] == "handle_not_found"
    assert await ann.state(handle) == {"secret": 1}
