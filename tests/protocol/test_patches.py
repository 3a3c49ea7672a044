"""Ring 1: what patch operations do to a document, and what they refuse."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mcpstated.protocol.documents import Json, dump, size_of
from mcpstated.protocol.errors import InvalidInput, PatchError, StateTooLarge
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import (
    Append,
    DelKey,
    Merge,
    Operation,
    Patched,
    Replace,
    SetKey,
    apply,
    operations_from_wire,
    replay,
)
from mcpstated.protocol.store import Touched

LIMITS = Limits()


def patch(document: dict[str, Json], *operations: Operation, limits: Limits = LIMITS) -> Patched:
    """Apply operations and check what holds for every patch."""
    before = copy.deepcopy(document)
    patched = apply(document, size_of(document), operations, limits=limits)
    assert document == before
    assert patched.size_bytes == size_of(patched.document)
    assert len(patched.touched) == len(operations)
    return patched


def refusal(document: dict[str, Json], *operations: Operation, limits: Limits = LIMITS) -> PatchError:
    before = dump(document)
    with pytest.raises(PatchError) as caught:
        apply(document, size_of(document), operations, limits=limits)
    assert dump(document) == before
    return caught.value


def test_append_adds_at_the_end_of_a_list() -> None:
    """Any value, a list as one item."""
    patched = patch({"a": [1]}, Append("a", [2]), Append("/a/1", 3))

    assert patched.document == {"a": [1, [2, 3]]}
    assert patched.touched == (Touched("append", "a", 2), Touched("append", "/a/1", 2))


def test_set_key_keeps_the_place_of_a_key_and_puts_a_new_one_last() -> None:
    """Key order is part of a document as people read it."""
    patched = patch({"a": 1, "b": {"x": 1}}, SetKey("", "a", None), SetKey("b", "y", {"z": 1}))

    assert dump(patched.document) == '{"a":null,"b":{"x":1,"y":{"z":1}}}'
    assert patched.touched == (Touched("set_key", "", 2), Touched("set_key", "b", 2))


def test_del_key_removes_one_key() -> None:
    """From the object at the path."""
    patched = patch({"a": {"x": 1, "y": 2}}, DelKey("a", "x"))

    assert patched.document == {"a": {"y": 2}}
    assert patched.touched == (Touched("del_key", "a", 1),)


def test_merge_is_shallow() -> None:
    """A nested object is replaced, not merged: what users of mcpstate rely on."""
    patched = patch({"p": {"a": {"x": 1}, "b": 2}}, Merge({"a": {"y": 1}, "c": None}, "p"))

    assert dump(patched.document) == '{"p":{"a":{"y":1},"b":2,"c":null}}'
    assert patched.touched == (Touched("merge", "p", 3),)


@pytest.mark.requirement("C29")
def test_operations_on_one_key_build_on_each_other() -> None:
    """They are applied in order; a later one finds what an earlier one made."""
    patched = patch(
        {},
        SetKey("", "list", []),
        Append("list", {"n": 1}),
        SetKey("/list/0", "n", 2),
        SetKey("/list/0", "m", 3),
        DelKey("/list/0", "n"),
    )

    assert patched.document == {"list": [{"m": 3}]}


@pytest.mark.requirement("C29")
@pytest.mark.parametrize("key", ["a/b", "~1", "", "a.b", "0", "-", "é", "e\u0301", "\x00", "\u2028"])
def test_any_text_can_be_a_key(key: str) -> None:
    """The key of set_key, del_key and merge is taken as it is: no path syntax in it."""
    document: dict[str, Json] = {"é": 1, "x": 2}

    patched = patch(document, SetKey("", key, "v"))
    assert patched.document == {**document, key: "v"}
    assert patch(patched.document, DelKey("", key)).document.keys() == document.keys() - {key}
    assert patch(document, Merge({key: "v"})).document == patched.document


@pytest.mark.requirement("C07")
def test_text_in_a_value_stays_byte_for_byte() -> None:
    """A text that looks like JSON is stored as that text."""
    ops = [{"op": "set_key", "path": "", "key": "k", "value": "[1]"}]

    assert patch({}, *operations_from_wire(ops)).document == {"k": "[1]"}


DOCUMENT: dict[str, Json] = {
    "list": [1, [2]],
    "object": {"k": 1},
    "text": "x",
    "null": None,
    "a.b": [1],
    "one": 1,
}


@pytest.mark.requirement("C29")
@pytest.mark.parametrize(
    ("operation", "reason", "hint"),
    [
        (Append("missing", 1), "path_not_found", '"list", "object"'),
        (Append("object.missing", 1), "path_not_found", '"object" has no key "missing"; its keys are "k"'),
        (Append("a.b", 1), "path_not_found", 'the root has no key "a"'),
        (Append("list.0", 1), "path_not_found", '"/list/0"'),
        (Append("/list/2", 1), "path_not_found", "numbered 0 to 1"),
        (Append("/list/-", 1), "path_not_found", '"-"'),
        (Append("/list/-1", 1), "path_not_found", '"-1"'),
        (Append("/list/01", 1), "path_not_found", '"01"'),
        (Append("/list/1000000000", 1), "path_not_found", '"1000000000"'),
        (Append("/~", 1), "bad_path", "~0"),
        (Append("", 1), "expected_list", "the root holds an object"),
        (Append("object", 1), "expected_list", 'the path "object" holds an object'),
        (Append("text", 1), "expected_list", "holds text"),
        (Append("null", 1), "expected_list", "holds null"),
        (Append("/list/0", 1), "expected_list", "holds a number"),
        (SetKey("list", "0", 1), "expected_object", "holds a list"),
        (SetKey("/list/1", "0", 1), "expected_object", "holds a list"),
        (SetKey("missing", "k", 1), "path_not_found", "set_key"),
        (SetKey("one", "k", 1), "expected_object", "holds a number"),
        (DelKey("list", "0"), "expected_object", "holds a list"),
        (DelKey("text.x", "0"), "path_not_found", '"text" holds text'),
        (Merge({"a": 1}, "list"), "expected_object", "holds a list"),
        (Merge({}, "list"), "expected_object", "holds a list"),
        (Merge({}, "missing"), "path_not_found", "missing"),
        (SetKey("", "k", float("nan")), "bad_value", "not finite"),
        (SetKey("", "k\ud800", 1), "bad_value", "surrogate"),
        (Append("list", "\ud800"), "bad_value", "surrogate"),
        (Append("list", [10**4300]), "bad_value", "4300 digits"),
        (Append("list", {"x": (1,)}), "bad_value", "tuple"),  # type: ignore[dict-item]
        (Merge({"x": {1: 1}}), "bad_value", "a key that is not text"),  # type: ignore[dict-item]
    ],
)
def test_an_operation_that_does_not_fit_is_refused_whole_and_by_number(
    operation: Operation, reason: str, hint: str
) -> None:
    """All of a patch or nothing; the error names operation number, operation, path and what to do."""
    error = refusal(DOCUMENT, SetKey("", "one", 2), DelKey("", "absent"), operation)

    assert error.details == {"index": 2, "op": operation.OP, "path": operation.path, "reason": reason}
    assert error.message.startswith(f"ops[2] ({operation.OP}): ")
    assert hint in error.message
    assert len(error.message) < 1_000


@pytest.mark.requirement("C34")
@pytest.mark.parametrize(
    "operations",
    [
        [],
        [SetKey("", "a", 1)],
        [SetKey("o", "x", [1, {"y": 2, "z": 3}])],
        [SetKey("o", "x", [1, {"z": 3, "y": 2}])],
        [DelKey("", "absent")],
        [Merge({})],
        [Merge({"a": 1, "o": {"x": [1, {"z": 3, "y": 2}]}})],
        [SetKey("", "a", 2), SetKey("", "a", 1)],
        [SetKey("", "new", 1), DelKey("", "new")],
        [DelKey("", "absent"), SetKey("", "a", 1), Merge({}, "o")],
    ],
)
def test_a_patch_that_changes_nothing_is_no_change(operations: list[Operation]) -> None:
    """Version, writer and expiry depend on it: the very same document comes back, and nothing to log."""
    document: dict[str, Json] = {"a": 1, "o": {"x": [1, {"y": 2, "z": 3}]}}
    patched = patch(document, *operations)

    assert not patched.is_changed
    assert patched.document is document
    assert patched.effective == ()


@pytest.mark.requirement("C34")
@pytest.mark.parametrize(
    ("old", "new"), [(1, 1.0), (1, True), (0.0, -0.0), (None, False), ([], {}), ([1], [True])]
)
def test_a_value_that_python_calls_equal_is_a_change(old: Json, new: Json) -> None:
    """JSON knows the difference, and so does the next reader."""
    patched = patch({"a": old}, SetKey("", "a", new))

    assert patched.is_changed
    assert dump(patched.document) == dump({"a": new})


def test_what_is_logged_is_only_what_had_an_effect() -> None:
    """The log costs what changed, and its readers see what really happened."""
    patched = patch(
        {"a": 1, "b": 2},
        SetKey("", "a", 1),
        Merge({"a": 1, "b": 3, "c": 4}),
        DelKey("", "absent"),
        Merge({"b": 3}),
    )

    assert patched.effective == (Merge({"b": 3, "c": 4}, ""),)
    assert patched.touched == (
        Touched("set_key", "", 2),
        Touched("merge", "", 3),
        Touched("del_key", "", 3),
        Touched("merge", "", 3),
    )


@pytest.mark.requirement("P8")
def test_a_patch_copies_only_the_containers_on_its_path() -> None:
    """Versions share the rest, so a big document costs nothing where nothing changes."""
    document: dict[str, Any] = {"a": {"list": [[1], {"x": 1}], "side": {}}, "b": {"deep": []}}
    patched = patch(document, Append("/a/list/0", 2))
    new: Any = patched.document

    assert new["b"] is document["b"]
    assert new["a"]["side"] is document["a"]["side"]
    assert new["a"]["list"][1] is document["a"]["list"][1]
    assert document["a"]["list"][0] == [1]
    assert new["a"]["list"][0] == [1, 2]


@pytest.mark.requirement("P8")
def test_a_patch_looks_at_nothing_but_its_path() -> None:
    """What cannot be encoded, compared or copied proves that the rest is neither dumped nor walked."""

    class Untouchable:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("a part beside the path was compared")

        __hash__ = None  # type: ignore[assignment]

        def __deepcopy__(self, memo: object) -> Any:
            raise AssertionError("a part beside the path was copied")

    document: dict[str, Any] = {"items": [Untouchable(), {"n": 1}], "rest": Untouchable()}
    operations = [
        Append("items", {"m": 2}),
        SetKey("/items/1", "n", 3),
        DelKey("/items/1", "n"),
        Merge({"x": 1}),
    ]
    patched = apply(document, 1_000, operations, limits=LIMITS)

    assert patched.size_bytes == 1_000 + len(',{"m":2}') - len('"n":1') + len(',"x":1')
    assert patched.document["rest"] is document["rest"]


def test_a_value_that_was_put_in_is_not_changed_by_the_next_operation() -> None:
    """Operations are logged after they were applied, so their values must stay as they were sent."""
    value: Json = {"items": []}
    operations: list[Operation] = [SetKey("", "a", value), Append("a.items", 1), SetKey("a", "k", 1)]
    patched = patch({}, *operations)

    assert value == {"items": []}
    assert patched.effective == tuple(operations)
    assert patched.document == {"a": {"items": [1], "k": 1}}


def test_one_value_in_two_places_stays_two_values() -> None:
    """Parts of a document may be one object in memory; a patch of one place must not show in the other."""
    shared: list[Json] = [1]
    patched = patch({"a": shared, "b": shared}, Append("a", 2))

    assert patched.document == {"a": [1, 2], "b": [1]}
    twice = patch({}, SetKey("", "a", shared), SetKey("", "b", shared), Append("a", 2), Append("b", 3))
    assert twice.document == {"a": [1, 2], "b": [1, 3]}


def put(path: str, kind: str, value: Json) -> Operation:
    """Return an operation of that kind that makes `value` member or item "0" at `path`."""
    if kind == "append":
        return Append(path, value)
    return SetKey(path, "0", value) if kind == "set_key" else Merge({"0": value}, path)


@pytest.mark.requirement("C11")
@pytest.mark.parametrize("kind", ["append", "set_key", "merge"])
def test_nesting_one_level_at_a_time_stops_at_the_limit(kind: str) -> None:
    """The limit holds for what a document becomes, not only for what one call brings."""
    document: dict[str, Json] = {"0": []} if kind == "append" else {}
    path = "/0" if kind == "append" else ""
    depth = 2 if kind == "append" else 1
    while depth < LIMITS.max_depth:
        document = patch(document, put(path, kind, [] if kind == "append" else {})).document
        path += "/0"
        depth += 1

    error = refusal(document, put(path, kind, []))
    assert error.details["reason"] == "too_deep"
    assert "128" in error.message
    assert patch(document, put(path, kind, 1)).is_changed


@pytest.mark.requirement("C11")
@pytest.mark.parametrize("depth", [127, 128, 129, 1_000, 100_000])
def test_a_deep_value_is_refused_without_a_crash(depth: int) -> None:
    """It fits below the root up to 127 levels."""
    value: Json = []
    for _ in range(depth - 1):
        value = [value]

    if depth < 128:
        assert patch({}, SetKey("", "k", value)).is_changed
        return
    for operation in (SetKey("", "k", value), Append("l", value), Merge({"k": value})):
        assert refusal({"l": []}, operation).details["reason"] == "too_deep"


@pytest.mark.requirement("P6")
def test_a_document_may_not_grow_beyond_the_limit() -> None:
    """The size after the whole patch counts; at the limit is taken."""
    limits = Limits(max_state_bytes=20)
    assert patch({"a": ""}, SetKey("", "a", "x" * 12), limits=limits).size_bytes == 20

    with pytest.raises(StateTooLarge) as caught:
        apply({"a": ""}, 8, [SetKey("", "a", "x" * 13)], limits=limits)
    assert caught.value.details == {"size_bytes": 21, "limit_bytes": 20}
    assert patch({"a": ""}, SetKey("", "a", "x" * 50), SetKey("", "a", "y"), limits=limits).size_bytes == 9


def test_a_document_above_a_lowered_limit_can_be_made_smaller() -> None:
    """An administrator may lower the limit; the way out must not be closed by it."""
    limits = Limits(max_state_bytes=10)
    document: dict[str, Json] = {"a": "x" * 20, "b": "y" * 20}

    assert patch(document, DelKey("", "a"), limits=limits).is_changed
    with pytest.raises(StateTooLarge):
        apply(document, size_of(document), [SetKey("", "c", 1)], limits=limits)


@pytest.mark.requirement("P6")
def test_the_number_of_operations_is_limited() -> None:
    """One call does bounded work."""
    limits = Limits(max_operations=2)
    assert patch({"a": []}, Append("a", 1), Append("a", 2), limits=limits).is_changed

    with pytest.raises(InvalidInput) as caught:
        apply({"a": []}, 8, [Append("a", 1)] * 3, limits=limits)
    assert caught.value.details == {"field": "ops"}


def test_replace_puts_a_value_in_the_place_of_another() -> None:
    """The log's own operation: members and items, never the root, never a new place."""
    patched = patch({"a": [1, 2], "b": {"x": 1, "y": 2}}, Replace("/a/0", [3]), Replace("/b/x", None))

    assert dump(patched.document) == '{"a":[[3],2],"b":{"x":null,"y":2}}'
    assert refusal({"a": [1]}, Replace("/a/1", 1)).details["reason"] == "path_not_found"
    assert refusal({"a": [1]}, Replace("", {})).details["reason"] == "bad_path"


def test_replace_sees_the_order_of_keys_and_set_key_does_not() -> None:
    """A save is logged exactly; a model that repeats an object in another order changes nothing."""
    document: dict[str, Json] = {"a": {"x": 1, "y": 2}}
    turned: Json = {"y": 2, "x": 1}

    assert not patch(document, SetKey("", "a", turned)).is_changed
    assert dump(patch(document, Replace("/a", turned)).document) == '{"a":{"y":2,"x":1}}'
    assert not patch(document, Replace("/a", {"x": 1, "y": 2})).is_changed


def test_replay_does_not_ask_for_limits() -> None:
    """What was accepted must be readable for ever, whatever the limits are by then."""
    big = {"list": list(range(2_000))}
    operations: list[Operation] = [Append("list", "x" * 600) for _ in range(2_000)]
    document, size_bytes = replay(big, size_of(big), operations)  # type: ignore[arg-type]

    assert size_bytes == size_of(document) > LIMITS.max_state_bytes
    assert len(document["list"]) == 4_000  # type: ignore[arg-type]
