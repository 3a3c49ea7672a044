"""Ring 1: how long the shim stays after the client's last word."""

from __future__ import annotations

import math

import pytest

from mcpstated.shim.ending import ANSWER_SECONDS, FLUSH_SECONDS, QUIET_SECONDS, Ending


def test_before_the_end_nothing_is_bounded() -> None:
    """A client that thinks for an hour is not leaving."""
    ending = Ending(0.0)
    assert not ending.has_begun
    assert ending.seconds_for_answers(3600.0) == math.inf
    assert ending.seconds_for_flush(3600.0) == math.inf


@pytest.mark.requirement("C17", "P6")
def test_answers_are_waited_for_while_something_moves() -> None:
    """C17: calls that are being answered one by one are all worth waiting for, within a bound."""
    ending = Ending(0.0)
    ending.begin(100.0)
    assert ending.seconds_for_answers(100.0) == QUIET_SECONDS
    ending.note_moved(101.5)
    assert ending.seconds_for_answers(102.0) == QUIET_SECONDS - 0.5
    ending.note_moved(100.0 + ANSWER_SECONDS - 0.5)
    assert ending.seconds_for_answers(100.0 + ANSWER_SECONDS - 0.5) == 0.5


@pytest.mark.requirement("C17")
def test_what_is_never_answered_keeps_nobody() -> None:
    """C17: an open subscription has no answer, so silence ends the wait."""
    ending = Ending(0.0)
    ending.begin(100.0)
    assert ending.seconds_for_answers(100.0 + QUIET_SECONDS) == 0


def test_a_slow_start_is_not_held_against_the_answers() -> None:
    """A batch that had to start the daemon first gets as long as any other."""
    ending = Ending(0.0)
    ending.begin(100.0)
    ending.note_connected(109.0)
    assert ending.seconds_for_answers(109.0) == QUIET_SECONDS


@pytest.mark.requirement("P6", "P7")
def test_a_client_may_read_the_rest_slowly_but_not_for_ever() -> None:
    """P7: `| less` is no reason to lose a line; a reader that is stuck is none to stay for ever."""
    ending = Ending(0.0)
    ending.begin(0.0)
    assert ending.seconds_for_flush(0.0) == ANSWER_SECONDS
    ending.note_moved(55.0)
    assert ending.seconds_for_flush(55.0) == FLUSH_SECONDS - 55.0
    assert ending.seconds_for_flush(FLUSH_SECONDS) == 0
