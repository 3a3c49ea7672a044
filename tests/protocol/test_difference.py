"""Ring 1: the operations between two documents, by example. What always holds is in the property tests."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mcpstated.protocol.difference import DEEPEST_LEVEL, MOST_OPERATIONS, difference
from mcpstated.protocol.documents import dump, size_of
from mcpstated.protocol.patches import Append, DelKey, Replace, SetKey, replay

BALLAST = {"ballast": "x" * 2_000}


def between(old: dict[str, Any], new: dict[str, Any]) -> Any:
    """Return the difference, after checking that it leads to the new document."""
    operations = difference({**BALLAST, **old}, {**BALLAST, **new})
    if operations is not None:
        assert dump(replay({**BALLAST, **old}, size_of({**BALLAST, **old}), operations)[0]) == dump(
            {**BALLAST, **new}
        )
    return operations


def test_the_worked_example() -> None:
    """The one in the module's docstring."""
    old = {"a": 1, "b": 2, "c": {"x": 1}}
    new = {"a": 1, "c": {"x": 2}, "d": 5}

    assert set(between(old, new)) == {DelKey("", "b"), SetKey("", "d", 5), SetKey("/c", "x", 2)}


def test_identical_documents_have_an_empty_difference() -> None:
    """None would mean that the document has to be stored whole."""
    document = {"a": [1, {"b": 2.0}]}
    assert difference(document, copy.deepcopy(document)) == ()
    assert difference({}, {}) == ()


def test_a_changed_member_deep_inside_is_one_short_operation() -> None:
    """History shows what was changed, not that something below was."""
    old = {"a": {"b/c": [{"d": 1, "e": "y" * 500}]}}
    new = copy.deepcopy(old)
    new["a"]["b/c"][0]["d"] = 2  # type: ignore[index]

    assert between(old, new) == (SetKey("/a/b~1c/0", "d", 2),)


def test_new_items_of_a_list_are_appended() -> None:
    """The most frequent save of all: a longer list."""
    old = {"log": [{"n": number} for number in range(100)]}
    new = {"log": [*old["log"], {"n": 100}, {"n": 101}]}

    assert between(old, new) == (Append("/log", {"n": 100}), Append("/log", {"n": 101}))


def test_a_changed_item_is_replaced_in_its_place() -> None:
    """And its neighbours stay out of the log."""
    old = {"log": ["a", "b", "c"] * 50}
    new = copy.deepcopy(old)
    new["log"][70] = None  # type: ignore[call-overload]

    assert between(old, new) == (Replace("/log/70", None),)


@pytest.mark.parametrize("new_items", [[1, 2], [], [9, 1, 2]], ids=["shorter", "empty", "shifted"])
def test_a_list_that_lost_or_moved_items_still_leads_to_the_new_one(new_items: list[int]) -> None:
    """No operation removes an item, so the whole list may have to be replaced."""
    assert between({"l": [1, 2, 3]}, {"l": new_items}) is not None


def test_a_list_that_changed_all_over_is_replaced_whole() -> None:
    """A hundred operations would be longer and say less."""
    old = {"l": list(range(100))}
    new = {"l": list(range(1, 101))}

    assert between(old, new) == (Replace("/l", new["l"]),)


@pytest.mark.parametrize(
    ("was", "becomes"), [(1, 1.0), (1, True), (0.0, -0.0), ([1], [1.0]), ({"x": 1}, {"x": True})]
)
def test_number_types_that_python_calls_equal_are_a_difference(was: Any, becomes: Any) -> None:
    """A reader in another language sees them."""
    operations = between({"k": was}, {"k": becomes})

    assert operations
    assert len(operations) == 1


def test_a_new_order_of_keys_is_reached_too() -> None:
    """At the top, inside, and in objects inside lists; set_key would call the last two no change."""
    assert between({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert between({"o": {"a": 1, "b": 2}}, {"o": {"b": 2, "a": 1}})
    assert between({"l": [{"a": 1, "b": 2}]}, {"l": [{"b": 2, "a": 1}]})


def test_keys_that_stay_in_order_are_not_set_again() -> None:
    """Deleting and adding keys must cost only those keys."""
    old = {"a": 1, "b": "x" * 500, "c": 3, "d": "x" * 500}
    new = {"b": old["b"], "d": old["d"], "e": 5}

    assert between(old, new) == (DelKey("", "a"), DelKey("", "c"), SetKey("", "e", 5))


def test_a_rewritten_document_has_no_difference() -> None:
    """Storing it whole is smaller."""
    assert difference({"a": "x" * 100}, {"b": "y" * 100}) is None
    assert difference({}, {"b": "y" * 100}) is None
    assert difference({"a": "x" * 100}, {}) is None


def test_too_many_changes_have_no_difference() -> None:
    """A bound on what replay has to do, and on what a reader of the history has to read."""
    old = {f"k{number}": [0, "x" * 100] for number in range(MOST_OPERATIONS + 1)}
    new: dict[str, Any] = {key: [1, "x" * 100] for key in old}

    assert difference(old, new) is None
    fewer = {**new, "k0": [0, "x" * 100]}
    operations = difference(old, fewer)
    assert operations is not None
    assert len(operations) == MOST_OPERATIONS


@pytest.mark.requirement("P7")
def test_very_deep_changes_are_stored_from_a_fixed_level_on() -> None:
    """Each level costs a comparison of all below it, so a deep document must not make it many."""

    def deep(leaf: int) -> dict[str, Any]:
        value: dict[str, Any] = {"leaf": leaf}
        for level in range(100):
            value = {f"level{level}": value}
        return value

    operations = between(deep(1), deep(2))
    assert operations is not None
    (operation,) = operations
    assert operation.path.count("/") == DEEPEST_LEVEL


def test_a_new_order_of_keys_below_that_level_is_reached_too() -> None:
    """What is replaced there equals the old value for set_key, which would leave it as it was."""
    old: dict[str, Any] = {"x": 1, "y": 2}
    new: dict[str, Any] = {"y": 2, "x": 1}
    for _ in range(DEEPEST_LEVEL + 1):
        old, new = {"a": old}, {"a": new}

    (operation,) = between(old, new)
    assert isinstance(operation, Replace)


def test_the_size_may_be_handed_in() -> None:
    """The engine knows it; what it says decides whether the operations are worth it."""
    old, new = {"a": 1, "b": "x" * 100}, {"a": 2, "b": "x" * 100}

    assert difference(old, new, size_bytes=size_of(new)) == (SetKey("", "a", 2),)
    assert difference(old, new, size_bytes=10) is None
