"""Ring 1: the shape of a document on one line, and as a bounded table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol.documents import size_of
from mcpstated.protocol.outline import DEEPEST_LEVEL, SUMMARY_CHARS, outline, summary
from mcpstated.protocol.pointer import parse_path, resolve
from support.json_values import documents, keys, values


@pytest.mark.requirement("C28")
def test_a_summary_names_keys_types_and_lengths() -> None:
    """Enough for a model to pick the right handle from a list."""
    document: dict[str, Any] = {
        "title": "x" * 32,
        "sources": [{}] * 12,
        "profile": {"a": 1, "b": 2, "c": 3},
        "done": True,
        "score": 1.5,
        "parent": None,
    }

    assert summary(document) == (
        "title: text(32), sources: list(12), profile: object(3), done: true, score: 1.5, parent: null"
    )
    assert summary({}) == ""


@pytest.mark.requirement("C28", "P6")
def test_a_summary_of_many_keys_is_cut_and_counted() -> None:
    """The rest is a number."""
    line = summary({f"key number {number}": [] for number in range(1_000)})

    assert len(line) <= SUMMARY_CHARS
    named, _, rest = line.rpartition(", and ")
    assert int(rest.removesuffix(" more")) == 1_000 - len(named.split(", "))


def test_a_summary_shows_no_text_and_no_giant_number() -> None:
    """Lists show the shape, never the content."""
    assert summary({"secret": "swordfish", "n": 10**4_000}) == "secret: text(9), n: number"


@given(st.dictionaries(keys | st.text(max_size=80), values, max_size=40))
def test_a_summary_is_one_bounded_printable_line(document: dict[str, Any]) -> None:
    """It is stored in a column and printed in terminals, whatever the keys are."""
    line = summary(document)

    assert len(line) <= SUMMARY_CHARS
    assert line.isprintable()


@pytest.mark.requirement("C28")
def test_an_outline_leads_to_the_parts() -> None:
    """Top-level members in their order, then what is inside the biggest."""
    document: dict[str, Any] = {
        "title": "short",
        "small": {"x": 1},
        "log": [{"id": number, "text": "y" * 100} for number in range(100)],
    }
    shape: Any = outline(document)

    assert shape["size_bytes"] == size_of(document)
    assert shape["keys"] == 3
    assert shape["omitted_keys"] == 0
    assert shape["parts"][:5] == [
        {"path": "/title", "type": "text", "size_bytes": 7, "chars": 5, "value": "short"},
        {"path": "/small", "type": "object", "size_bytes": 7, "keys": 1},
        {"path": "/log", "type": "list", "size_bytes": size_of(document["log"]), "items": 100},
        {"path": "/log/0", "type": "object", "size_bytes": 118, "keys": 2},
        {"path": "/log/1", "type": "object", "size_bytes": 118, "keys": 2},
    ]


@given(documents, st.integers(0, 3_000))
def test_an_outline_keeps_its_budget_and_tells_the_truth(document: dict[str, Any], budget: int) -> None:
    """Each path that it hands out loads a part of that type and size."""
    shape: Any = outline(document, budget_bytes=budget)

    assert size_of(shape) <= max(budget, size_of({**shape, "parts": [], "omitted_keys": len(document)}))
    named = {part["path"] for part in shape["parts"]}
    assert len(named) == len(shape["parts"])
    assert shape["omitted_keys"] == len(document) - sum(len(parse_path(path)) == 1 for path in named)
    for part in shape["parts"]:
        value = resolve(document, part["path"])
        assert part["size_bytes"] == size_of(value)
        if "value" in part:
            assert part["value"] == value


@pytest.mark.requirement("C28", "P6")
@pytest.mark.parametrize(
    "document",
    [
        {f"key{number}": [number] * 10 for number in range(20_000)},
        {"one": {f"key{number}": number for number in range(20_000)}},
        {"k" * 10_000: "x", "after": 1},
        {"text": "x" * 900_000},
        {"list": [[0] * 100] * 2_000},
    ],
    ids=["many keys", "many keys below", "a long key", "a long text", "many items"],
)
def test_an_outline_of_anything_big_fits_a_reply(document: dict[str, Any]) -> None:
    """It goes where the document did not fit."""
    shape: Any = outline(document)

    assert size_of(shape) <= 4_096
    assert shape["parts"]


def test_a_key_too_long_for_the_budget_does_not_hide_the_others() -> None:
    """It is counted as omitted, and the next one is named."""
    shape: Any = outline({"k" * 10_000: "x", "after": 1})

    assert [part["path"] for part in shape["parts"]] == ["/after"]
    assert shape["omitted_keys"] == 1


def test_an_outline_stops_at_a_fixed_depth() -> None:
    """Sizes of deep parts would have to be counted once per level."""
    value: Any = 1
    for _ in range(50):
        value = {"a": value}
    shape: Any = outline(value)

    assert max(len(parse_path(part["path"])) for part in shape["parts"]) == DEEPEST_LEVEL
