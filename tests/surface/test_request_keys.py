"""`request_key` on the tools that write."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.requirement("P2")
async def test_a_call_repeated_under_its_key_answers_the_same_and_does_nothing(desk: Any) -> None:
    """A model that lost track repeats the call; the reply must be the one that it forgot."""
    state = {"l": [], "a": {"x": 1, "y": 2}}
    first = await desk.ok("state_save", kind="research", state=state, request_key="start")
    handle = first["handle"]
    patch = {"handle": handle, "ops": [{"op": "append", "path": "l", "value": 1}], "request_key": "p1"}
    patched = await desk.ok("state_patch", **patch)
    touched = await desk.ok("state_touch", handle=handle, ttl_days=3, request_key="t1")
    reordered = {"a": {"y": 2, "x": 1}, "l": []}
    assert await desk.ok("state_save", state=reordered, request_key="start", kind="research") == first
    assert await desk.ok("state_patch", **patch) == patched
    assert await desk.ok("state_touch", handle=handle, ttl_days=3, request_key="t1") == touched
    assert (await desk.ok("state_load", handle=handle))["state"]["l"] == [1]
    deleted = await desk.ok("state_delete", handle=handle, request_key="d1")
    assert await desk.ok("state_delete", handle=handle, request_key="d1") == deleted


@pytest.mark.requirement("P2")
async def test_a_key_of_another_call_is_refused(desk: Any) -> None:
    """Other arguments or another tool: nothing is done, and the field is named."""
    handle = await desk.mint({"n": 1})
    await desk.ok("state_touch", handle=handle, ttl_days=3, request_key="k")
    for tool, arguments in (("state_touch", {"ttl_days": 4}), ("state_delete", {}), ("state_touch", {})):
        error = await desk.refused(tool, handle=handle, request_key="k", **arguments)
        assert (error["code"], error["field"]) == ("invalid_input", "request_key")
    assert (await desk.ok("state_load", handle=handle))["version"] == 2


async def test_a_key_on_a_tool_that_only_reads_is_ignored_by_name(desk: Any) -> None:
    """Reads may be repeated anyhow."""
    handle = await desk.mint({"n": 1})
    loaded = await desk.ok("state_load", handle=handle, request_key="k")
    assert loaded["ignored_arguments"] == ["request_key"]


async def test_a_deletion_says_how_it_can_be_undone_and_by_whom(desk: Any) -> None:
    """So that the model tells its user instead of trying itself."""
    handle = await desk.mint({"n": 1})
    reply = await desk.ok("state_delete", handle=handle)
    assert reply["deleted"] is True
    assert reply["trash_until"].endswith("Z")
    assert f"mcpstated trash restore {handle}" in reply["hint"]
