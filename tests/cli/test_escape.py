"""Text from a state is shown, never obeyed."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from mcpstated.cli.escape import visible


def test_escape_sequences_are_written_out() -> None:
    """An escape sequence in a title could rewrite what the terminal showed before."""
    assert visible("\x1b]0;owned\x07\x1b[2J") == "\\x1b]0;owned\\x07\\x1b[2J"


def test_line_breaks_are_written_out_unless_the_layout_is_ours() -> None:
    """A line break in a title could forge a row of a table; in a JSON text the lines are ours."""
    assert visible("a\nb\tc\rd") == "a\\nb\\tc\\rd"
    assert visible("a\nb\tc\rd", keep_layout=True) == "a\nb\tc\\rd"


def test_direction_overrides_and_invisible_tags_are_written_out() -> None:
    """They make a line read as another, or hide text from people that a model would read."""
    assert visible("a\u202eb\u2066c\U000e0041\ufeff") == "a\\u202eb\\u2066c\\U000e0041\\ufeff"


def test_ordinary_text_of_any_script_stays_as_it_is() -> None:
    """Escaping everything that is not ASCII would make most titles of the world unreadable."""
    text = "Wärmepumpe 漢字 עברית 👩\u200d🔬"

    assert visible(text) == text


@given(st.text(st.characters()))
def test_no_control_character_and_no_lone_surrogate_is_left(text: str) -> None:
    """Whatever the text is, the result can be encoded and holds nothing of the category Cc."""
    shown = visible(text)

    shown.encode()
    assert not any(unicodedata.category(c) == "Cc" for c in shown)
