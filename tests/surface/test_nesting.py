from __future__ import annotations

import json
from typing import Any

import pytest

LIMIT = 128


def nest(depth: int, kind: str) -> dict[str, Any]:
    """Return an object that holds containers, `depth` inside each other with the root counted."""
    value: Any = 0
    for _ in range(depth - 1):
        value = [value] if kind == "arrays" else {"k": value}
    return {"k": value}


@pytest.mark.requirement("C11", "P6")
@pytest.mark.parametrize("kind", ["arrays", "objects"])
@pytest.mark.parametrize("depth", [100, LIMIT])
async def test_a_document_up_to_the_limit_can_be_stored_and_loaded(desk: Any, depth: int, kind: str) -> None:
    state = nest(depth, kind)
    assert await desk.state(await desk.mint(state)) == state


@pytest.mark.requirement("C11", "P6")
@pytest.mark.parametrize("kind", ["arrays", "objects"])
@pytest.mark.parametrize("depth", [LIMIT + 1, 500, 1_000, 100_000])
async def test_a_deeper_document_is_one_error_and_nothing_else(desk: Any, depth: int, kind: str) -> None:
    """However deep: the call fails, the next one works, nothing is stored that cannot be loaded."""
    error = await desk.refused("state_save", kind="research", state=nest(depth, kind))
    assert (error["code"], error["field"]) == ("invalid_input", "state")
    assert str(LIMIT) in error["message"]
    handle = await desk.mint({"l": []})
    patch = {"op": "append", "path": "l", "value": nest(depth, kind)}
    assert (await desk.refused("state_patch", handle=handle, ops=[patch]))["code"] == "patch_error"
    assert await desk.state(handle) == {"l": []}
    assert (await desk.ok("state_list"))["total"] == 1


@pytest.mark.requirement("C11", "P6")
async def test_patches_cannot_grow_a_document_beyond_the_limit(desk: Any) -> None:
    """One level at a time, each of them harmless by itself."""
    handle = await desk.mint({"k": {}})
    path = "k"
    for _ in range(LIMIT - 2):
        await desk.ok(
            "state_patch", handle=handle, ops=[{"op": "set_key", "path": path, "key": "k", "value": {}}]
        )
        path += ".k"
    error = await desk.refused(
        "state_patch", handle=handle, ops=[{"op": "set_key", "path": path, "key": "k", "value": {}}]
    )
    assert (error["code"], error["reason"]) == ("patch_error", "too_deep")
    await desk.ok("state_patch", handle=handle, ops=[{"op": "set_key", "path": path, "key": "k", "value": 1}])
    assert await desk.state(handle)


@pytest.mark.requirement("C07", "C11")
async def test_json_text_around_a_document_does_not_count_as_nesting(desk: Any) -> None:
    """The same document is taken, or refused, in whatever wrapping it comes."""
    for depth, is_taken in ((LIMIT, True), (LIMIT + 1, False)):
        state = nest(depth, "arrays")
        saved = await desk.call("state_save", json.dumps({"kind": "research", "state": state}))
        assert saved["structuredContent"]["ok"] is is_taken
        handle = await desk.mint({})
        op = {"op": "set_key", "path": "", "key": "k", "value": state["k"]}
        for wrapped in (json.dumps([op]), [json.dumps(op)], [op]):
            patched = await desk.call("state_patch", {"handle": handle, "ops": wrapped})
            assert patched["structuredContent"]["ok"] is is_taken
