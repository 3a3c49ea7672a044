"""Ring 1: the small arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.fields import (
    check_handle,
    check_kind,
    check_limit,
    check_title,
    check_ttl_days,
    check_user,
    check_version,
    check_writer,
)
from mcpstated.protocol.limits import Limits

LIMITS = Limits()


def refused(check: Callable[[], object], field: str, *hints: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check()
    assert caught.value.details == {"field": field}
    assert caught.value.message.startswith(f"{field} must ")
    for hint in hints:
        assert hint in caught.value.message
    assert len(caught.value.message) < 300
    caught.value.message.encode()


@pytest.mark.parametrize("kind", ["a", "research", "a-b-1", "a" * 32, "x-"])
def test_a_kind_is_a_short_lower_case_word(kind: str) -> None:
    """It becomes the beginning of the handle."""
    assert check_kind(kind) == kind


@pytest.mark.parametrize(
    "kind", ["", "A", "1a", "-a", "a_b", "a b", "a" * 33, "é", "a\n", "\ud800", 123, None, True, ["a"]]
)
def test_any_other_kind_is_refused_with_the_rule(kind: Any) -> None:
    """Text or a clear error (C08)."""
    refused(lambda: check_kind(kind), "kind")


@pytest.mark.requirement("C24")
@pytest.mark.parametrize("ttl", [1, 7.5, 1e-9, 36_525, 36_525.0, 5e-324])
def test_a_ttl_within_the_range_is_taken_as_it_is(ttl: float) -> None:
    """However short: it just expires at once."""
    taken = check_ttl_days(ttl, LIMITS)
    assert taken == ttl
    assert type(taken) is float


@pytest.mark.requirement("C24")
@pytest.mark.parametrize(
    "ttl", [0, -0.0, -1, 1e15, 36_525.001, 10**400, math.inf, -math.inf, math.nan, True, False, "7", [7], {}]
)
def test_a_ttl_out_of_the_range_is_refused_with_the_range(ttl: Any) -> None:
    """One row with an absurd time must never get in, for it would break every list."""
    refused(lambda: check_ttl_days(ttl, LIMITS), "ttl_days", "above 0", "at most 36525")


@pytest.mark.requirement("C24")
def test_no_ttl_means_for_ever() -> None:
    """And the field's name can be the caller's own."""
    assert check_ttl_days(None, LIMITS) is None
    refused(lambda: check_ttl_days(0, LIMITS, field="default_ttl_days"), "default_ttl_days")


@pytest.mark.requirement("C35")
@pytest.mark.parametrize("user", ["A", "a", "a/b", "../a", "é", "e\u0301", "a b", "\U0001f600", "x" * 256])
def test_a_user_is_its_exact_code_points(user: str) -> None:
    """No normalisation and no path syntax: composed and decomposed letters are two users."""
    assert check_user(user, LIMITS) == user


@pytest.mark.requirement("C35")
@pytest.mark.parametrize(
    "user",
    [
        "",
        " a",
        "a ",
        "\u00a0a",
        "a\u2003",
        " ",
        "a\nb",
        "a\x00",
        "\x7f",
        "\x9f",
        "a\u2028",
        "\ud800",
        "x" * 257,
        "y" * 10_240,
        None,
        1,
        True,
        b"a",
    ],
)
def test_a_user_that_could_be_taken_for_another_is_refused(user: Any) -> None:
    """White space at the ends and control characters cannot be seen."""
    refused(lambda: check_user(user, LIMITS), "user")


def test_titles_and_writers_are_bounded_single_lines() -> None:
    """They are printed in lists; the empty title is no title."""
    assert check_title(None, LIMITS) is None
    assert check_title("", LIMITS) is None
    assert check_title("Ω " * 100, LIMITS) == "Ω " * 100
    assert check_writer("", LIMITS) == ""
    assert check_writer("laptop/claude-code", LIMITS) == "laptop/claude-code"
    for bad in ("x" * 201, "a\nb", "\x1b[31m", "\ud800", 1, True, ["x"]):
        refused(lambda bad=bad: check_title(bad, LIMITS), "title")  # type: ignore[misc]
        refused(lambda bad=bad: check_writer(bad, LIMITS), "writer")  # type: ignore[misc]
    refused(lambda: check_writer(None, LIMITS), "writer")


@pytest.mark.requirement("C35")
def test_any_line_of_text_may_be_a_handle() -> None:
    """Whether it exists is one question with one answer for all: not found."""
    for handle in ("research_k3v9x2mq", "x", "../../etc", "é" * 200):
        assert check_handle(handle) == handle
    for bad in ("", "x" * 201, "a\x00", "\ud800", None, 5, True):
        refused(lambda bad=bad: check_handle(bad), "handle")  # type: ignore[misc]


@pytest.mark.requirement("C08", "C14")
def test_versions_are_integers_that_the_store_can_hold() -> None:
    """0 and 99 are just never current; a boolean or a float here would skip the check silently."""
    for version in (0, 1, 99, 2**63 - 1):
        assert check_version(version, "expect_version") == version
    for bad in (-1, 2**63, True, 3.0, "3", None, math.nan):
        refused(lambda bad=bad: check_version(bad, "expect_version"), "expect_version", "from 0 to")  # type: ignore[misc]


def test_a_page_has_one_to_two_hundred_handles() -> None:
    """The range is in the message."""
    assert [check_limit(limit, LIMITS) for limit in (1, 200)] == [1, 200]
    for bad in (0, -1, 201, 10**30, True, 1.0, "5", None):
        refused(lambda bad=bad: check_limit(bad, LIMITS), "limit", "from 1 to 200")  # type: ignore[misc]


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.text()),
    st.just("\ud800"),
)


@given(anything)
def test_no_argument_fails_in_another_way(value: Any) -> None:
    """The value itself or `InvalidInput`, whatever comes."""
    for check in (
        check_kind,
        check_handle,
        check_title,
        check_writer,
        check_user,
        check_ttl_days,
        check_limit,
    ):
        try:
            checked = check(value)
        except InvalidInput:
            continue
        assert checked == value or (check is check_title and value == "")
