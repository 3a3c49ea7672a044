from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest


@pytest.mark.requirement("C24")
async def test_a_touch_sets_the_expiry_from_now(desk: Any, timer: Any) -> None:
    handle = await desk.mint({}, ttl_days=30)
    timer.now += 86_400
    for version, (ttl_days, days) in enumerate(((7, 7), ("8", 8), (0.5, 0.5), (36_525, 36_525)), start=2):
        touched = await desk.ok("state_touch", handle=handle, ttl_days=ttl_days)
        lasting = datetime.fromisoformat(touched["expires_at"]) - datetime.fromisoformat(
            touched["created_at"]
        )
        assert lasting == timedelta(days=days + 1)
        assert touched["changed"] is True
        assert touched["version"] == version


@pytest.mark.requirement("C24")
async def test_a_touch_without_a_time_means_never(desk: Any) -> None:
    """The stated rule for null: it is absent, and absent means never."""
    for given in ({}, {"ttl_days": None}):
        handle = await desk.mint({}, ttl_days=30)
        assert (await desk.ok("state_touch", handle=handle, **given))["expires_at"] is None


@pytest.mark.requirement("C24")
async def test_a_touch_out_of_range_is_refused(desk: Any) -> None:
    handle = await desk.mint({}, ttl_days=30)
    before = await desk.ok("state_load", handle=handle)
    for ttl_days in (0, -1, 1e15, True, "soon", float("inf"), float("nan"), 36_525.5):
        error = await desk.refused("state_touch", handle=handle, ttl_days=ttl_days)
        assert (error["code"], error["field"]) == ("invalid_input", "ttl_days"), ttl_days
    assert await desk.ok("state_load", handle=handle) == before


@pytest.mark.requirement("C21", "C15")
async def test_an_expired_state_says_so_everywhere(desk: Any, timer: Any) -> None:
    """It cannot be read, changed or revived; only deleting it still works."""
    handle = await desk.mint({"secret": 1, "l": []}, ttl_days=1)
    timer.now += 86_401
    calls: list[tuple[str, dict[str, Any]]] = [
        ("state_load", {}),
        ("state_patch", {"ops": [{"op": "append", "path": "l", "value": 1}]}),
        ("state_save", {"state": {}, "expect_version": 1}),
        ("state_save", {"state": {}}),
        ("state_touch", {"ttl_days": 5}),
        ("state_touch", {}),
    ]
    for tool, arguments in calls:
        error = await desk.refused(tool, handle=handle, **arguments)
        assert error["code"] == "handle_expired"
        assert error["handle"] == handle
        assert error["ttl_days"] == 1
        assert datetime.fromisoformat(error["expired_at"]).utcoffset() == timedelta(0)
        assert "secret" not in str(error)
    assert (await desk.ok("state_delete", handle=handle))["deleted"] is True


@pytest.mark.requirement("C14")
async def test_a_deleted_state_is_not_found_again(desk: Any) -> None:
    handle = await desk.mint({"l": []})
    deleted = await desk.ok("state_delete", handle=handle)
    assert deleted["handle"] == handle
    assert deleted["deleted"] is True
    for tool, arguments in (
        ("state_load", {}),
        ("state_patch", {"ops": [{"op": "append", "path": "l", "value": 1}]}),
        ("state_touch", {}),
        ("state_delete", {}),
    ):
        assert (await desk.refused(tool, handle=handle, **arguments))["code"] == "handle_not_found"
    assert (await desk.ok("state_list"))["total"] == 0


async def test_a_handle_that_cannot_be_one_is_one_clear_error(desk: Any) -> None:
    calls = (("state_load", {}), ("state_touch", {}), ("state_delete", {}), ("state_patch", {"ops": []}))
    for handle in (123, "", "no_such", "../x", "a\x00b", "\ud800", "x" * 10_000):
        for tool, arguments in calls:
            error = await desk.refused(tool, handle=handle, **arguments)
            assert error["code"] in ("invalid_input", "handle_not_found"), handle
            assert len(str(error)) < 1_500
