from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

ODD: dict[str, Any] = {
    "a/b": [],
    "~1": [],
    "": [],
    "a.b": {"c": []},
    "0": {"-": []},
    "-": [[], {}],
    "zürich": {"ß": []},
}


def append(path: str, value: Any = 1) -> dict[str, Any]:
    return {"op": "append", "path": path, "value": value}


async def test_a_patch_answers_what_it_touched_and_not_the_document(desk: Any) -> None:
    handle = await desk.mint({"l": [1], "o": {}, "gone": 1})
    patched = await desk.ok(
        "state_patch",
        handle=handle,
        ops=[
            append("l", 2),
            {"op": "set_key", "path": "o", "key": "k", "value": None},
            {"op": "del_key", "path": "", "key": "gone"},
            {"op": "merge", "mapping": {"m": 1}},
        ],
    )
    assert patched["version"] == 2
    assert patched["changed"] is True
    assert patched["touched"] == [
        {"op": "append", "path": "l", "length": 2},
        {"op": "set_key", "path": "o", "length": 1},
        {"op": "del_key", "path": "", "length": 2},
        {"op": "merge", "path": "", "length": 3},
    ]
    assert "state" not in patched
    assert await desk.state(handle) == {"l": [1, 2], "o": {"k": None}, "m": 1}


async def test_the_document_can_be_asked_for(desk: Any) -> None:
    handle = await desk.mint({"l": []})
    for flag in (True, "true"):
        patched = await desk.ok("state_patch", handle=handle, ops=[append("l")], return_state=flag)
    assert patched["state"] == {"l": [1, 1]}
    assert patched["version"] == 3
    assert patched["touched"] == [{"op": "append", "path": "l", "length": 2}]
    patched = await desk.ok("state_patch", handle=handle, ops=[append("l")], return_state="false")
    assert "state" not in patched


@pytest.mark.requirement("C28")
async def test_a_document_that_was_asked_for_keeps_to_the_budget(desk: Any) -> None:
    handle = await desk.mint({"l": ["x" * 1000] * 100})
    patched = await desk.ok("state_patch", handle=handle, ops=[append("l")], return_state=True)
    assert patched["truncated"] is True
    assert patched["outline"]["keys"] == 1
    assert "state" not in patched


@pytest.mark.requirement("C28", "P8")
async def test_the_reply_of_a_patch_does_not_grow_with_the_document(desk: Any) -> None:
    handle = await desk.mint({"l": ["x" * 1000] * 900})
    result = await desk.call("state_patch", {"handle": handle, "ops": [append("l", "y")]})
    assert len(result["content"][0]["text"]) < 500


@pytest.mark.requirement("C29")
async def test_a_patch_reaches_exactly_its_target(desk: Any) -> None:
    paths = ("/a~1b", "/~01", "/", "/a.b/c", "0.-", "/0/-", "/-/0", "zürich.ß", "/z\u00fcrich/\u00df")
    handle = await desk.mint(ODD)
    for number, path in enumerate(paths):
        await desk.ok("state_patch", handle=handle, ops=[append(path, f"here {number}")])
        loaded = await desk.ok("state_load", handle=handle, path=path)
        assert loaded["state"][-1] == f"here {number}"
        assert str(await desk.state(handle)).count("here") == number + 1


BAD: list[tuple[Any, str]] = [
    (append("nowhere"), "path_not_found"),
    (append("/-/2"), "path_not_found"),
    (append("/-/-1"), "path_not_found"),
    (append("/-/1000000000"), "path_not_found"),
    (append("/-/-"), "path_not_found"),
    (append(""), "expected_list"),
    ({"op": "merge", "path": "", "mapping": [1]}, "bad_field_type"),
    ({"op": "merge", "path": "", "mapping": None}, "bad_field_type"),
    ({"op": "merge", "path": "/-", "mapping": {}}, "expected_object"),
    ({"op": "set_key", "path": "", "key": "k"}, "missing_field"),
    ({"op": "drop", "path": ""}, "unknown_op"),
    ({"op": "replace", "path": "/-/0", "value": 1}, "unknown_op"),
    ({"path": ""}, "missing_field"),
    (7, "bad_field_type"),
]


@pytest.mark.requirement("C29", "C15")
async def test_a_bad_operation_stops_the_whole_patch_and_is_named(desk: Any) -> None:
    """All operations of a call or none, and nothing is padded or created on the way."""
    handle = await desk.mint(ODD)
    for op, reason in BAD:
        error = await desk.refused("state_patch", handle=handle, ops=[append("/"), append("/a~1b"), op])
        assert (error["code"], error["index"], error["reason"]) == ("patch_error", 2, reason), op
        assert {"op", "path"} <= error.keys()
    loaded = await desk.ok("state_load", handle=handle)
    assert loaded["version"] == 1
    assert loaded["state"] == ODD


@pytest.mark.requirement("C29")
async def test_two_operations_on_one_key_apply_in_order(desk: Any) -> None:
    handle = await desk.mint({})
    ops = [{"op": "set_key", "path": "", "key": "k", "value": n} for n in (1, 2)]
    patched = await desk.ok("state_patch", handle=handle, ops=ops)
    assert patched["version"] == 2
    assert await desk.state(handle) == {"k": 2}


@pytest.mark.requirement("C07")
async def test_operations_as_json_text_work_and_values_stay_text(desk: Any) -> None:
    handle = await desk.mint({"l": []})
    text = '[{"op": "append", "path": "l", "value": "[1]"}]'
    await desk.ok("state_patch", handle=handle, ops=text)
    await desk.ok("state_patch", handle=handle, ops=[append("l", '{"a":1}')])
    assert await desk.state(handle) == {"l": ["[1]", '{"a":1}']}


@pytest.mark.requirement("C06")
async def test_a_misspelt_ops_is_named(desk: Any) -> None:
    handle = await desk.mint({"l": []})
    error = await desk.refused("state_patch", handle=handle, opts=[append("l")])
    assert (error["code"], error["field"]) == ("invalid_input", "ops")


async def test_ops_that_are_no_array_are_refused_by_name(desk: Any) -> None:
    handle = await desk.mint({"l": []})
    for ops in ("append", 1, {"op": "append", "path": "l", "value": 1}, None):
        error = await desk.refused("state_patch", handle=handle, ops=ops)
        assert (error["code"], error["field"]) == ("invalid_input", "ops"), ops


@pytest.mark.requirement("P6")
async def test_too_many_operations_are_refused(desk: Any) -> None:
    handle = await desk.mint({"l": []})
    error = await desk.refused("state_patch", handle=handle, ops=[append("l")] * 1_001)
    assert (error["code"], error["field"]) == ("invalid_input", "ops")
    assert await desk.state(handle) == {"l": []}


@pytest.mark.requirement("C34")
async def test_a_patch_without_effect_leaves_version_writer_and_expiry(
    open_desk: Callable[..., Awaitable[Any]],
) -> None:
    """So the other writer's save, based on that version, still lands."""
    ann, ben = await open_desk(client="A"), await open_desk(client="B")
    handle = await ann.mint({"k": 1}, ttl_days=3)
    before = await ann.ok("state_load", handle=handle)
    for ops in (
        [],
        [{"op": "set_key", "path": "", "key": "k", "value": 1}],
        [{"op": "del_key", "path": "", "key": "absent"}],
        [{"op": "merge", "mapping": {}}],
    ):
        patched = await ben.ok("state_patch", handle=handle, ops=ops)
        assert patched["changed"] is False
    assert await ann.ok("state_load", handle=handle) == before
    assert (await ann.ok("state_save", handle=handle, state={"k": 2}, expect_version=1))["version"] == 2
