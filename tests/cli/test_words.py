"""Sizes, times and counts as people read them."""

from __future__ import annotations

import pytest

from mcpstated.cli import words
from mcpstated.surface import replies


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (150 * 1024, "150 KiB"), (3 * 1024**2, "3.0 MiB")],
)
def test_a_size_has_three_digits_and_its_unit(size_bytes: int, text: str) -> None:
    """More digits than that say nothing to a person."""
    assert words.size(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0.4, "0 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_span_has_its_two_largest_units(seconds: float, text: str) -> None:
    """`1 d 1 h` is what people say; a unit between that is zero is not skipped over."""
    assert words.span(seconds) == text


def test_a_moment_is_told_by_its_distance() -> None:
    """`updated 3 min ago` needs no clock to understand; a clock that is a little behind changes nothing."""
    assert words.ago(1000, 1000.5) == "just now"
    assert words.ago(1000, 998) == "just now"
    assert words.ago(1000, 1000 + 200) == "3 min ago"


def test_a_deadline_is_never_ahead_or_past() -> None:
    """Expiry must not read as still ahead once it has passed."""
    assert words.until(None, 0) == "never"
    assert words.until(10.5, 10) == "in 1 s"
    assert words.until(86_400 * 7 - 10, 0) == "in 7 d"
    assert words.until(10, 10) == "expired"


def test_times_for_programs_are_iso_8601_in_utc() -> None:
    """The tools' replies have them so, and a script must not meet two forms of one time."""
    assert words.iso(0.5) == "1970-01-01T00:00:00.500Z" == replies.moment(0.5)
    assert words.iso(None) is None


def test_a_noun_agrees_with_its_number() -> None:
    """`1 handles` is how a program shows that nobody looked."""
    assert [words.count(n, "handle") for n in (0, 1, 1200)] == ["0 handles", "1 handle", "1,200 handles"]
