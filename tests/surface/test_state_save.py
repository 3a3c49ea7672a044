from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest


async def test_a_new_state_answers_its_handle_and_metadata(desk: Any) -> None:
    """The names are those that users of mcpstate know; what is added does not replace them."""
    saved = await desk.ok("state_save", kind="research", state={"a": 1}, title="Zinc")
    assert saved["handle"].startswith("research_")
    assert saved["version"] == 1
    assert saved["kind"] == "research"
    assert saved["title"] == "Zinc"
    assert saved["expires_at"] is None
    assert saved["last_writer"] == "laptop/probe"
    assert saved["size_bytes"] == len('{"a":1}')
    assert saved["changed"] is True
    assert "state" not in saved
    created = datetime.fromisoformat(saved["created_at"])
    assert created.utcoffset() == timedelta(0)
    assert saved["updated_at"] == saved["created_at"]


async def test_a_new_state_needs_a_kind(desk: Any) -> None:
    error = await desk.refused("state_save", state={})
    assert error["code"] == "invalid_input"
    assert error["field"] == "kind"


@pytest.mark.requirement("C08")
async def test_a_kind_that_cannot_be_one_is_refused(desk: Any) -> None:
    for kind in (123, "", "Research", "a_b", "a" * 33, "-a", "a b", "é"):
        error = await desk.refused("state_save", kind=kind, state={})
        assert (error["code"], error["field"]) == ("invalid_input", "kind"), kind
    assert (await desk.ok("state_list"))["total"] == 0


async def test_a_new_state_cannot_expect_a_version(desk: Any) -> None:
    """A forgotten handle would fork the state silently."""
    error = await desk.refused("state_save", kind="research", state={}, expect_version=3)
    assert (error["code"], error["field"]) == ("invalid_input", "handle")
    assert (await desk.ok("state_list"))["total"] == 0


async def test_an_empty_handle_is_refused(desk: Any) -> None:
    """It is a handle that got lost, not a wish for a new state."""
    for given in ({}, {"expect_version": 1}):
        error = await desk.refused("state_save", kind="research", state={}, handle="", **given)
        assert (error["code"], error["field"]) == ("invalid_input", "handle")
    assert (await desk.ok("state_list"))["total"] == 0


@pytest.mark.requirement("P3")
async def test_a_save_at_the_newest_version_replaces_the_document(desk: Any) -> None:
    handle = await desk.mint({"a": 1}, title="Zinc", ttl_days=2)
    saved = await desk.ok("state_save", handle=handle, state={"b": [True, None, "x"]}, expect_version=1)
    assert saved["version"] == 2
    assert saved["title"] == "Zinc", "what is not given is kept"
    assert saved["expires_at"] is not None
    assert await desk.state(handle) == {"b": [True, None, "x"]}


async def test_a_title_can_be_changed_and_removed(desk: Any) -> None:
    handle = await desk.mint({}, title="Zinc")
    saved = await desk.ok("state_save", handle=handle, state={"n": 1}, expect_version=1, title="Copper")
    assert saved["title"] == "Copper"
    saved = await desk.ok("state_save", handle=handle, state={"n": 2}, expect_version=2, title="")
    assert "title" not in saved


@pytest.mark.requirement("C08", "C14")
async def test_the_version_may_be_spelled_freely(desk: Any) -> None:
    handle = await desk.mint({"n": 0})
    for version in ("1", 2.0, 3):
        saved = await desk.ok("state_save", handle=handle, state={"n": int(version)}, expect_version=version)
        assert saved["version"] == int(version) + 1


SPELLINGS: list[tuple[dict[str, Any], str]] = [
    ({}, "expect_version_required"),
    ({"expect_version": None}, "expect_version_required"),
    ({"expected_version": None}, "expect_version_required"),
    ({"expect_version": "null"}, "invalid_input"),
    ({"expect_version": "3.5"}, "invalid_input"),
    ({"expect_version": True}, "invalid_input"),
    ({"expect_version": -1}, "invalid_input"),
    ({"expected_verison": 1}, "invalid_input"),
    ({"expect_verison": 1}, "invalid_input"),
    ({"version": 1}, "invalid_input"),
    ({"expect_version": 0}, "stale_write"),
    ({"expect_version": 99}, "stale_write"),
]


@pytest.mark.requirement("C08", "C06")
async def test_no_spelling_skips_the_version_check(desk: Any) -> None:
    """Whatever a model makes of it, a save without the right version stores nothing."""
    handle = await desk.mint({"precious": 1})
    for given, code in SPELLINGS:
        error = await desk.refused("state_save", handle=handle, state={}, **given)
        assert error["code"] == code, given
    assert await desk.state(handle) == {"precious": 1}


async def test_a_missing_version_is_asked_for_with_the_newest(desk: Any) -> None:
    """The model gets what it needs to try again."""
    handle = await desk.mint({"a": 1})
    error = await desk.refused("state_save", handle=handle, state={"b": 1})
    assert error["handle"] == handle
    assert error["version"] == 1


@pytest.mark.requirement("C14", "P4")
async def test_a_lost_race_is_a_conflict_that_says_what_to_do(
    open_desk: Callable[..., Awaitable[Any]],
) -> None:
    """Both clients loaded version 1; the second to save must learn who was first and go on from there."""
    first, second = await open_desk(client="First"), await open_desk(client="Second")
    handle = await first.mint({"a": 1})
    await first.ok("state_save", handle=handle, state={"a": 2}, expect_version=1)
    for _ in range(2):
        result = await second.call("state_save", {"handle": handle, "state": {"a": 3}, "expect_version": 1})
        error = result["structuredContent"]["error"]
        assert error["code"] == "stale_write"
        assert error["expected_version"] == 1
        assert error["current"]["version"] == 2
        assert error["current"]["last_writer"] == "laptop/first"
        assert datetime.fromisoformat(error["current"]["updated_at"]).utcoffset() == timedelta(0)
        text = result["content"][0]["text"]
        for part in (
            "laptop/first",
            "Nothing was stored",
            "state_patch",
            "expect_version 2",
            "replaced the whole",
        ):
            assert part in text
    assert await second.state(handle) == {"a": 2}


@pytest.mark.requirement("C14")
async def test_a_save_after_a_delete_finds_nothing(desk: Any) -> None:
    """A deleted state is never created again by somebody who did not know."""
    handle = await desk.mint({"a": 1})
    await desk.ok("state_delete", handle=handle)
    for version in (0, 1, 99):
        error = await desk.refused("state_save", handle=handle, state={}, expect_version=version)
        assert error["code"] == "handle_not_found"
        assert error["handle"] == handle
    assert (await desk.refused("state_save", handle=handle, state={}))["code"] == "handle_not_found"


async def test_the_kind_of_a_handle_may_be_repeated(desk: Any) -> None:
    """Clients of mcpstate send it with every save."""
    handle = await desk.mint({})
    saved = await desk.ok("state_save", kind="research", handle=handle, state={"a": 1}, expect_version=1)
    assert saved["version"] == 2
    assert "ignored_arguments" not in saved


async def test_a_kind_that_contradicts_the_handle_is_refused(desk: Any) -> None:
    """Whoever sends it means another handle, or a new state; either way not this overwrite."""
    handle = await desk.mint({"a": 1})
    error = await desk.refused("state_save", kind="shopping", handle=handle, state={}, expect_version=1)
    assert (error["code"], error["field"]) == ("invalid_input", "kind")
    assert await desk.state(handle) == {"a": 1}


@pytest.mark.requirement("C34")
async def test_a_save_of_the_same_document_changes_nothing(open_desk: Callable[..., Awaitable[Any]]) -> None:
    first, second = await open_desk(client="First"), await open_desk(client="Second")
    handle = await first.mint({"a": 1})
    saved = await second.ok("state_save", handle=handle, state={"a": 1}, expect_version=1)
    assert saved["changed"] is False
    assert saved["version"] == 1
    assert saved["last_writer"] == "laptop/first"


@pytest.mark.requirement("C24")
async def test_a_time_to_live_out_of_range_is_refused(desk: Any) -> None:
    handle = await desk.mint({})
    for ttl_days in (0, -1, 1e15, math.inf, math.nan, True, "x", 36_526):
        for call in ({"kind": "research"}, {"handle": handle, "expect_version": 1}):
            error = await desk.refused("state_save", state={"a": 1}, ttl_days=ttl_days, **call)
            assert (error["code"], error["field"]) == ("invalid_input", "ttl_days"), ttl_days
    assert (await desk.ok("state_list"))["total"] == 1


@pytest.mark.requirement("C24")
async def test_a_time_to_live_counts_from_now(desk: Any) -> None:
    for ttl_days, days in (("7", 7), (7, 7), (0.5, 0.5), (36_525, 36_525)):
        saved = await desk.ok("state_save", kind="research", state={}, ttl_days=ttl_days)
        expires = datetime.fromisoformat(saved["expires_at"]) - datetime.fromisoformat(saved["created_at"])
        assert expires == timedelta(days=days)


@pytest.mark.requirement("C06")
async def test_an_extra_argument_is_named_and_not_stored(desk: Any) -> None:
    saved = await desk.ok("state_save", kind="research", state={"a": 1}, task_progress="- [x] done")
    assert saved["ignored_arguments"] == ["task_progress"]
    assert await desk.state(saved["handle"]) == {"a": 1}


@pytest.mark.requirement("C06")
async def test_an_extra_argument_is_named_beside_a_failure_too(desk: Any) -> None:
    result = await desk.call("state_load", {"handle": "research_none", "task_progress": 1})
    assert result["structuredContent"]["ignored_arguments"] == ["task_progress"]


@pytest.mark.requirement("C07")
async def test_a_document_as_json_text_is_stored_as_a_document(desk: Any) -> None:
    state = {"note": '{"a":1}', "n": 1}
    saved = await desk.ok("state_save", kind="research", state='{"note": "{\\"a\\":1}", "n": 1}')
    assert await desk.state(saved["handle"]) == state


async def test_numbers_and_text_come_back_as_they_were(desk: Any) -> None:
    """The reply passes several libraries, each with ideas of its own about JSON."""
    state = {
        "big": 2**70,
        "float": 1.0,
        "minus": -0.0,
        "null": None,
        "nested": {"null": None},
        "text": "a\u2028b\x00c\U0001f600",
        "": [None, False],
    }
    handle = await desk.mint(state)
    back = await desk.state(handle)
    assert repr(back) == repr(state)


@pytest.mark.requirement("C28", "P6")
async def test_a_document_above_the_limit_is_refused_with_both_sizes(desk: Any) -> None:
    error = await desk.refused("state_save", kind="research", state={"t": "x" * 2**20})
    assert error["code"] == "state_too_large"
    assert error["size_bytes"] > error["limit_bytes"] == 2**20
    assert (await desk.ok("state_list"))["total"] == 0
