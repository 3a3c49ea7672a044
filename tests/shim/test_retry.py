"""Ring 1: when to look for a daemon, and when to give up."""

from __future__ import annotations

import pytest

from mcpstated.shim.retry import GIVE_UP_SECONDS, Retry


def test_the_first_search_is_due_at_once() -> None:
    """P8: a client waits for its first answer, so the daemon is looked for before it has asked."""
    retry = Retry(100.0)
    assert retry.is_wanted
    assert retry.seconds_left(100.0) == 0


@pytest.mark.requirement("P2")
def test_the_first_loss_is_followed_at_once_and_further_ones_later_and_later() -> None:
    """P2: a daemon that is replaced is found again quickly; one that keeps dying does not eat the machine."""
    retry = Retry(0.0)
    waits = []
    for _ in range(12):
        retry.note_found()
        retry.note_lost(1.0, opened_at=1.0, has_progressed=False)
        waits.append(round(retry.seconds_left(1.0), 3))
    assert waits == [0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.requirement("P2")
def test_a_connection_that_settled_something_makes_the_next_loss_a_first_one() -> None:
    """P2: twenty kills with a call between each are twenty quick reconnects."""
    retry = Retry(0.0)
    for second in range(20):
        retry.note_found()
        assert not retry.note_lost(float(second), opened_at=float(second), has_progressed=True)
        assert retry.seconds_left(float(second)) == 0


@pytest.mark.requirement("P2", "P6")
def test_a_daemon_that_never_gets_anywhere_is_given_up_after_the_bound() -> None:
    """P6: no wait without an end, even if every single attempt to connect succeeds."""
    retry = Retry(0.0)
    assert not retry.note_lost(1.0, opened_at=0.5, has_progressed=False)
    assert not retry.note_lost(1.0 + GIVE_UP_SECONDS, opened_at=10.0, has_progressed=False)
    assert retry.note_lost(1.1 + GIVE_UP_SECONDS, opened_at=11.0, has_progressed=False)


def test_a_connection_that_lived_long_is_no_failure() -> None:
    """An idle client whose daemon is replaced every hour has had no trouble at all."""
    retry = Retry(0.0)
    assert not retry.note_lost(1.0, opened_at=0.5, has_progressed=False)
    assert not retry.note_lost(3600.0, opened_at=2.0, has_progressed=False)
    assert retry.seconds_left(3600.0) == 0


@pytest.mark.requirement("P2")
def test_a_daemon_that_others_must_start_is_waited_for_within_the_bound() -> None:
    """P2: under MCPSTATED_NO_SPAWN a restart by somebody else costs a client some time and no error."""
    retry = Retry(5.0)
    assert not retry.note_absent(5.0)
    assert not retry.note_absent(14.9)
    assert retry.note_absent(15.0)


@pytest.mark.requirement("P2")
def test_giving_up_is_forgotten_with_the_next_line() -> None:
    """P2: a failure is never remembered: the next call gets the whole bound again."""
    retry = Retry(0.0)
    assert retry.note_absent(10.0)
    retry.give_up()
    assert not retry.is_wanted
    retry.want(50.0)
    assert retry.is_wanted
    assert not retry.note_absent(59.9)
    assert retry.note_absent(60.0)
