"""Ring 1: when two JSON values are the same."""

from __future__ import annotations

import copy
import tracemalloc
from typing import Any

import pytest
from hypothesis import given

from mcpstated.protocol.documents import dump, is_identical, same
from support.json_values import documents, values


@pytest.mark.requirement("C34")
@pytest.mark.parametrize(
    ("a", "b"),
    [(1, 1.0), (1, True), (0, False), (1.0, True), (0.0, -0.0), (0, -0.0), ("1", 1), (None, False), ([], {})],
)
def test_values_that_python_calls_equal_may_differ(a: Any, b: Any) -> None:
    """A set of 1.0 where 1 was is a change; `==` alone would lose it."""
    for left, right in [(a, b), (b, a)]:
        assert not same(left, right)
        assert not same({"x": [left]}, {"x": [right]})
        assert not is_identical({"x": [{"y": left}]}, {"x": [{"y": right}]})


def test_the_order_of_keys_matters_only_to_identity() -> None:
    """JSON objects have no order; the stored text has."""
    a = {"x": {"p": 1, "q": [{"m": 1, "n": 2}]}, "y": 2.5}
    b = {"y": 2.5, "x": {"q": [{"n": 2, "m": 1}], "p": 1}}

    assert same(a, b)
    assert not is_identical(a, b)


def test_reordered_objects_still_differ_where_a_number_type_does() -> None:
    """The values of reordered objects must be paired by key before their types are compared."""
    assert not same({"x": 1, "y": 1.0}, {"y": 1, "x": 1.0})
    assert not same([{"x": 0.0, "y": -0.0}], [{"y": 0.0, "x": -0.0}])


@given(values, values)
def test_identity_is_equality_of_the_text(a: Any, b: Any) -> None:
    """The definition, held against the fast way."""
    assert is_identical(a, b) == (dump(a) == dump(b))
    assert is_identical(a, copy.deepcopy(a))


@given(documents)
def test_a_document_is_the_same_in_reverse_order(document: dict[str, Any]) -> None:
    """`same` ignores order at every level that it looks at."""
    assert same(document, dict(reversed(list(copy.deepcopy(document).items()))))


@pytest.mark.requirement("P8")
def test_shared_parts_are_not_looked_into() -> None:
    """Versions of one document share nearly everything; comparing them must cost what differs."""
    shared: list[Any] = [0.5] * 200_000
    tracemalloc.start()
    try:
        assert same({"a": shared, "b": 1}, {"b": 1, "a": shared})
        assert is_identical({"a": shared, "b": [1]}, {"a": shared, "b": [1]})
        assert not is_identical({"a": shared, "b": 1}, {"a": shared, "b": 1.0})
        _kept, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000
