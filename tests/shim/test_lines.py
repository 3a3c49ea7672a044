"""Ring 1: cutting the client's bytes into lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.shim.lines import KEPT_BYTES, LineReader, Skipped


@pytest.mark.requirement("C33")
def test_only_the_newline_byte_ends_a_line() -> None:
    """C33: JSON text may hold characters that other line splitters know; they are the client's own."""
    line = '{"t":"a\u2028b\u2029c\u0085d\x0b\x0c\x1c"}'.encode()
    assert LineReader(1000).feed(line + b"\n") == [line]


@pytest.mark.requirement("C36")
def test_a_carriage_return_stays_part_of_its_line() -> None:
    """C36: what a line means is the daemon's matter; the shim forwards it verbatim."""
    assert LineReader(1000).feed(b"{}\r\n") == [b"{}\r"]


@pytest.mark.requirement("C36")
def test_blank_lines_are_left_out() -> None:
    """C36: they are no message, so they need no number and no daemon."""
    assert LineReader(1000).feed(b"\n\r\n  \t\n{}\n\n") == [b"{}"]


@pytest.mark.requirement("P6")
def test_a_line_that_is_too_long_is_skipped_to_its_end() -> None:
    """P6: it must neither be stored nor be taken apart into lines of its own."""
    reader = LineReader(8)
    assert reader.feed(b"123456789") == []
    assert reader.feed(b"more" * 100) == []
    assert reader.feed(b"end\n12345678\n") == [
        Skipped(b"123456789" + b"more" * 100 + b"end", b"123456789" + b"more" * 100 + b"end"),
        b"12345678",
    ]


@pytest.mark.requirement("P6")
def test_of_a_skipped_line_only_its_ends_are_held() -> None:
    """A client that never ends its line must not fill the memory."""
    reader = LineReader(10_000)
    for _ in range(100):
        reader.feed(b"x" * 5_000)
    (skipped,) = reader.feed(b"end\n")

    assert isinstance(skipped, Skipped)
    assert (len(skipped.head), len(skipped.tail)) == (KEPT_BYTES, KEPT_BYTES)
    assert skipped.tail.endswith(b"xend")


@pytest.mark.requirement("C17")
def test_what_is_left_at_the_end_is_a_line() -> None:
    """C17: `printf` without a last newline still says something."""
    reader = LineReader(8)
    assert reader.feed(b"first\nlast") == [b"first"]
    assert reader.finish() == [b"last"]
    assert reader.finish() == []


def test_a_last_line_that_was_too_long_is_reported_once() -> None:
    """P6: the client hears of it even if it never ends the line."""
    reader = LineReader(3)
    reader.feed(b"12345")
    assert reader.finish() == [Skipped(b"12345", b"12345")]
    assert reader.finish() == []


@given(
    st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\r", b"\xe2\x80\xa8", b" "]), max_size=60),
    st.integers(1, 6),
)
def test_portions_do_not_matter(pieces: list[bytes], limit: int) -> None:
    """A pipe hands bytes over in any portions; the lines are the same."""
    data = b"".join(pieces)
    whole, single = LineReader(limit), LineReader(limit)
    expected = whole.feed(data) + whole.finish()
    found: list[bytes | Skipped] = []
    for byte in data:
        found += single.feed(bytes([byte]))
    assert found + single.finish() == expected
