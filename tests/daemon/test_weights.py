"""Ring 1: what a text costs to read, known before it is read."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.daemon.weights import count_marks, marks_allowed, too_many_marks
from mcpstated.protocol.limits import Limits
from support.json_values import documents

MIB = 1024 * 1024


@given(st.binary(max_size=400))
def test_every_mark_is_counted(text: bytes) -> None:
    """The definition, byte by byte."""
    assert count_marks(text, stop_above=len(text)) == sum(
        text.count(mark) for mark in (b"[", b"{", b",", b":")
    )


@given(documents)
def test_a_document_has_at_least_as_many_marks_as_values_beyond_the_first(document: object) -> None:
    """So a bound on marks is one on what a parser makes of the text."""

    def values(value: object) -> int:
        if isinstance(value, dict):
            return 1 + sum(1 + values(inner) for inner in value.values())
        return 1 + sum(map(values, value)) if isinstance(value, list) else 1

    text = json.dumps(document).encode()
    assert values(document) <= 1 + 2 * count_marks(text, stop_above=len(text))


@pytest.mark.requirement("P7")
def test_no_document_that_may_be_stored_is_refused_for_its_marks() -> None:
    """The bound is for what could not be stored anyway: a document has fewer marks than bytes."""
    limits = Limits()
    densest = b"[" + b"[]," * ((limits.max_state_bytes - 4) // 3) + b"[]]"
    assert len(densest) <= limits.max_state_bytes
    assert count_marks(densest, stop_above=len(densest)) < marks_allowed(limits)
    assert str(marks_allowed(limits)) in too_many_marks(limits)


@pytest.mark.requirement("P6")
def test_counting_holds_portions_and_stops_when_it_is_too_much() -> None:
    """Hostile text is looked at without a copy of it, and no further than needed."""
    text = b"[" * (16 * MIB)
    tracemalloc.start()
    try:
        marks = count_marks(text, stop_above=1000)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert 1000 < marks <= MIB
    assert peak < 3 * MIB
