"""Ring 1: what error messages may quote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol.wording import QUOTED_CHARS, json_type, list_keys, name_type, printable, quote


def test_types_have_the_names_that_json_gives_them() -> None:
    """Models know JSON; `NoneType` and `dict` are Python's words."""
    values = [{}, [], "", True, 1, 1.5, None]
    assert [json_type(v) for v in values] == ["object", "list", "text", "boolean", "number", "number", "null"]
    assert [name_type(v) for v in values[:4]] == ["an object", "a list", "text", "a boolean"]
    assert name_type((1,)) == "tuple"


@pytest.mark.requirement("P6")
@given(st.text(max_size=200) | st.just("\ud800" * 100))
def test_a_quotation_is_short_printable_and_can_be_encoded(text: str) -> None:
    """Whatever was sent may be quoted back."""
    phrase = quote(text)

    assert phrase.isprintable()
    phrase.encode()
    assert len(phrase) <= 2 + 10 * QUOTED_CHARS
    if text.isprintable() and len(text) <= QUOTED_CHARS:
        assert phrase == f'"{text}"'


def test_long_text_is_cut_visibly() -> None:
    """A reader must see that it is not the whole."""
    assert printable("x" * 11, 10) == "x" * 9 + "…"
    assert printable("x" * 10, 10) == "x" * 10
    assert printable("a b\n", 10) == "a b\\n"


@pytest.mark.requirement("P6")
@given(st.lists(st.text(max_size=100), unique=True, max_size=60))
def test_a_list_of_keys_is_bounded_and_counts_the_rest(keys: list[str]) -> None:
    """An object with ten thousand keys must not fill the reply."""
    phrase = list_keys(keys)

    assert len(phrase) < 1_200
    if len(keys) > 20:
        assert phrase.endswith(" more")


def test_a_short_list_is_complete() -> None:
    """In the order of the document."""
    assert list_keys({"b": 1, "a": 2}) == '"b", "a"'
    assert list_keys([f"k{number}" for number in range(23)]).endswith('"k19" and 3 more')
