"""Ring 1: patch operations on the wire and in the log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol.documents import dump, parse
from mcpstated.protocol.errors import InvalidInput, PatchError
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import (
    Append,
    DelKey,
    Merge,
    Operation,
    Replace,
    SetKey,
    operations_from_log,
    operations_from_wire,
    operations_to_log,
    operations_to_wire,
)
from support.json_values import documents, operations_for

any_operations = documents.flatmap(operations_for)


def test_the_wire_form_is_the_one_that_users_of_mcpstate_know() -> None:
    """Their prompts and programs go on working."""
    wire: list[Any] = [
        {"op": "append", "path": "sources", "value": {"url": "x"}},
        {"op": "set_key", "path": "profile", "key": "name", "value": None},
        {"op": "del_key", "path": "", "key": "draft"},
        {"op": "merge", "mapping": {"a": 1}, "path": "profile"},
    ]
    operations = (
        Append("sources", {"url": "x"}),
        SetKey("profile", "name", None),
        DelKey("", "draft"),
        Merge({"a": 1}, "profile"),
    )

    assert operations_from_wire(wire) == operations
    assert operations_to_wire(operations) == wire


def test_only_the_path_of_a_merge_may_be_left_out() -> None:
    """It is the root then, as users of mcpstate know it."""
    assert operations_from_wire([{"op": "merge", "mapping": {}}]) == (Merge({}, ""),)


@pytest.mark.requirement("C07")
def test_a_value_is_taken_as_it_is() -> None:
    """A text that looks like JSON is a text; the very object goes into the document."""
    value = ["[1]", {"a": "{}"}]
    (operation,) = operations_from_wire([{"op": "set_key", "path": "", "key": "k", "value": value}])

    assert isinstance(operation, SetKey)
    assert operation.value is value


@given(any_operations)
def test_operations_come_back_from_both_forms(operations: list[Operation]) -> None:
    """Through their JSON text, as the wire and the log carry them."""
    logged: tuple[Operation, ...] = (*operations, Replace("/a/0", {"x": -0.0}))
    for given_operations, write, read in [
        (tuple(operations), operations_to_wire, operations_from_wire),
        (logged, operations_to_log, operations_from_log),
    ]:
        text = dump(write(given_operations))  # type: ignore[arg-type]
        assert read(parse(text, field="ops", limits=Limits())) == given_operations  # type: ignore[arg-type]


def test_replace_is_for_the_log_only() -> None:
    """Callers have four operations; the fifth would let them overwrite list items unseen."""
    replace = [{"op": "replace", "path": "/a", "value": 1}]

    assert operations_from_log(replace) == (Replace("/a", 1),)
    with pytest.raises(PatchError) as caught:
        operations_from_wire(replace)
    assert caught.value.details["reason"] == "unknown_op"


GOOD = {"op": "append", "path": "a", "value": 1}


@pytest.mark.requirement("C29")
@pytest.mark.parametrize(
    ("operation", "op", "path", "reason", "hint"),
    [
        (None, "", "", "bad_field_type", "must be an object"),
        ("append", "", "", "bad_field_type", "not text"),
        ([], "", "", "bad_field_type", "not a list"),
        ({}, "", "", "missing_field", '"append", "set_key", "del_key", "merge"'),
        ({"op": None, "path": "p"}, "", "p", "bad_field_type", "not null"),
        ({"op": ["append"]}, "", "", "bad_field_type", "not a list"),
        ({"op": "push", "path": "p"}, "push", "p", "unknown_op", '"append", "set_key", "del_key", "merge"'),
        ({"op": "Append", "path": "p", "value": 1}, "Append", "p", "unknown_op", '"append"'),
        ({"op": "append", "value": 1}, "append", "", "missing_field", '"path"'),
        ({"op": "append", "path": "p"}, "append", "p", "missing_field", '"value"'),
        ({"op": "append", "path": 1, "value": 1}, "append", "", "bad_field_type", '"path" must be text'),
        ({"op": "append", "path": None, "value": 1}, "append", "", "bad_field_type", "not null"),
        ({"op": "set_key", "path": "p", "value": 1}, "set_key", "p", "missing_field", '"key"'),
        ({"op": "set_key", "path": "p", "key": 1, "value": 1}, "set_key", "p", "bad_field_type", '"key"'),
        ({"op": "set_key", "path": "p", "key": "k"}, "set_key", "p", "missing_field", '"value"'),
        ({"op": "del_key", "path": "p", "key": None}, "del_key", "p", "bad_field_type", "not null"),
        ({"op": "merge", "path": "p"}, "merge", "p", "missing_field", '"mapping"'),
        ({"op": "merge", "mapping": None}, "merge", "", "bad_field_type", "not null"),
        ({"op": "merge", "mapping": [1]}, "merge", "", "bad_field_type", "not a list"),
        ({"op": "merge", "mapping": "{}"}, "merge", "", "bad_field_type", "not text"),
        ({"op": "merge", "mapping": {}, "path": None}, "merge", "", "bad_field_type", "not null"),
        ({"op": "merge", "value": {}}, "merge", "", "unknown_field", '"mapping"'),
        ({**GOOD, "vlaue": 1}, "append", "a", "unknown_field", '"vlaue"'),
        ({**GOOD, "key": "k"}, "append", "a", "unknown_field", '"path", "value"'),
    ],
)
def test_a_malformed_operation_is_refused_with_its_number(
    operation: Any, op: str, path: str, reason: str, hint: str
) -> None:
    """A misspelt field must not be dropped in silence, and the model must learn which operation it was."""
    with pytest.raises(PatchError) as caught:
        operations_from_wire([GOOD, GOOD, operation])

    assert caught.value.details == {"index": 2, "op": op, "path": path, "reason": reason}
    assert caught.value.message.startswith("ops[2]")
    assert hint in caught.value.message
    assert "Nothing of this patch was applied" in caught.value.message


@pytest.mark.parametrize("ops", [None, {}, "[]", 1, {"op": "append"}])
def test_the_operations_must_be_a_list(ops: Any) -> None:
    """Anything else is an argument of the wrong type, not a bad operation."""
    with pytest.raises(InvalidInput) as caught:
        operations_from_wire(ops)
    assert caught.value.details == {"field": "ops"}


@pytest.mark.requirement("P6")
def test_what_the_error_quotes_is_bounded_and_can_be_encoded() -> None:
    """Names and paths of any length and content come back in the error."""
    for wild in ("x" * 100_000, "\ud800\n"):
        with pytest.raises(PatchError) as caught:
            operations_from_wire([{"op": wild, "path": wild, wild: 1}])

        dumped = dump(caught.value.to_payload())  # type: ignore[arg-type]
        assert len(dumped) < 2_000


@given(st.lists(st.dictionaries(st.sampled_from(["op", "path", "key", "value", "mapping", "x"]), st.text())))
def test_no_list_of_objects_fails_in_another_way(ops: list[dict[str, str]]) -> None:
    """Operations or a `PatchError`, nothing else."""
    try:
        operations = operations_from_wire(ops)
    except PatchError:
        return
    assert operations_from_wire(operations_to_wire(operations)) == operations
