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
    """P2: twenty kills with a call between each are twenty quick reconnects, each with the whole bound."""
    retry = Retry(0.0)
    for second in range(20):
        retry.note_found()
        retry.note_lost(float(second), opened_at=float(second), has_progressed=True)
        assert retry.seconds_left(float(second)) == 0
        assert retry.begin(float(second)) == GIVE_UP_SECONDS


@pytest.mark.requirement("P2", "P6")
def test_losses_and_searches_share_one_deadline() -> None:
    """P6: a call waits 10 s from when its connection broke, not 10 s for each thing that goes wrong then."""
    retry = Retry(0.0)
    retry.note_found()
    retry.note_first_line(100.0)
    retry.note_lost(101.0, opened_at=99.0, has_progressed=False)
    assert retry.begin(101.0) == 10.0
    retry.note_found()
    retry.note_lost(104.0, opened_at=103.0, has_progressed=False)
    assert retry.begin(104.01) == pytest.approx(6.99)
    retry.note_missed(109.0)
    assert retry.patience(109.0) == pytest.approx(2.0)
    retry.note_lost(111.5, opened_at=110.0, has_progressed=False)
    assert retry.seconds_left(111.5) == 0
    assert retry.begin(111.5) == 0


@pytest.mark.requirement("P2")
def test_the_last_pause_ends_at_the_deadline() -> None:
    """P2: neither earlier nor later is a line answered without a daemon."""
    retry = Retry(0.0)
    for _ in range(10):
        retry.note_lost(9.75, opened_at=9.5, has_progressed=False)
    assert retry.seconds_left(9.75) == 0.25


@pytest.mark.requirement("P2")
def test_a_line_that_comes_alone_has_the_whole_bound() -> None:
    """P2: what the shim went through before the client asked for anything is nothing to the client."""
    searching = Retry(0.0)
    searching.note_first_line(9.0)
    searching.note_missed(10.0)
    assert searching.begin(10.0) == 9.0

    connected = Retry(0.0)
    connected.note_lost(1.0, opened_at=0.5, has_progressed=False)
    connected.note_found()
    connected.note_first_line(8.0)
    connected.note_lost(9.0, opened_at=7.0, has_progressed=False)
    assert connected.patience(9.0) == 10.0


def test_time_in_which_the_client_did_not_read_does_not_count() -> None:
    """P2: no daemon was looked for meanwhile, so it is too early to say that there is none."""
    retry = Retry(0.0)
    retry.note_lost(4.0, opened_at=3.0, has_progressed=True)
    assert retry.begin(60.0) == 10.0


def test_a_connection_that_lived_long_is_no_failure() -> None:
    """An idle client whose daemon is replaced every hour has had no trouble at all."""
    retry = Retry(0.0)
    retry.note_lost(1.0, opened_at=0.5, has_progressed=False)
    retry.note_found()
    retry.note_lost(3600.0, opened_at=2.0, has_progressed=False)
    assert retry.seconds_left(3600.0) == 0
    assert retry.begin(3600.0) == GIVE_UP_SECONDS


@pytest.mark.requirement("P2")
def test_a_daemon_that_others_must_start_is_waited_for_within_the_bound() -> None:
    """P2: under MCPSTATED_NO_SPAWN a restart by somebody else costs a client some time and no error."""
    retry = Retry(5.0)
    assert retry.begin(5.0) == 10.0
    now = 5.0
    for _ in range(9):
        retry.note_missed(now)
        now += retry.seconds_left(now)
        assert retry.begin(now) > 0
    retry.note_missed(15.0)
    assert retry.begin(15.0) == 0


@pytest.mark.requirement("P2")
def test_giving_up_is_forgotten_with_the_next_line() -> None:
    """P2: a failure is never remembered: the next call gets the whole bound again."""
    retry = Retry(0.0)
    retry.note_missed(10.0)
    assert retry.begin(10.0) == 0
    retry.give_up()
    assert not retry.is_wanted
    retry.want(50.0)
    assert retry.is_wanted
    assert retry.begin(50.0) == GIVE_UP_SECONDS
