"""The store's clock goes forward whatever the wall clock does."""

from __future__ import annotations

import pytest

from mcpstated.daemon.clock import SETTLE_SECONDS, SMALL_STEP_SECONDS
from mcpstated.daemon.testing import ManualTime

DAY = 86_400.0


def test_time_follows_both_clocks_when_they_agree() -> None:
    """The ordinary case: now is the wall clock's time."""
    time = ManualTime(wall=1000.0)
    clock = time.clock()
    assert clock.now() == 1000.0
    time.pass_seconds(5)
    assert clock.now() == 1005.0


@pytest.mark.requirement("C21")
def test_a_backward_step_is_not_seen_and_time_goes_on() -> None:
    """C21: what had expired stays expired, and what lives goes on ageing by the boot clock."""
    time = ManualTime(wall=1000.0)
    clock = time.clock()
    time.step_wall(-600)
    assert clock.now() == 1000.0
    time.pass_seconds(10)
    assert clock.now() == 1010.0


@pytest.mark.requirement("C21")
def test_a_wall_clock_that_came_back_is_followed_again() -> None:
    """C21: a clock that was wrong for a while leaves no trace."""
    time = ManualTime(wall=1000.0)
    clock = time.clock()
    time.step_wall(-DAY)
    time.pass_seconds(100)
    assert clock.now() == 1100.0
    time.step_wall(DAY)
    assert clock.now() == 1100.0
    time.pass_seconds(1)
    assert clock.now() == 1101.0


@pytest.mark.requirement("C21")
@pytest.mark.parametrize("step", [8 * 3600.0, DAY, 365 * DAY])
def test_a_large_step_forward_is_believed_only_after_it_has_lasted(step: float) -> None:
    """C21: a clock that jumps ahead and back kills nothing; a machine that was paused is caught up with."""
    time = ManualTime(wall=1000.0)
    clock = time.clock()
    time.step_wall(step)
    assert clock.now() == 1000.0
    time.pass_seconds(SETTLE_SECONDS - 1)
    assert clock.now() == 1000.0 + SETTLE_SECONDS - 1
    time.pass_seconds(1)
    assert clock.now() == time.wall


@pytest.mark.requirement("C21")
def test_a_step_forward_that_is_taken_back_never_happened() -> None:
    """C21: the waiting starts anew with the next step."""
    time = ManualTime(wall=1000.0)
    clock = time.clock()
    for _ in range(3):
        time.step_wall(DAY)
        clock.now()
        time.pass_seconds(SETTLE_SECONDS - 1)
        clock.now()
        time.step_wall(-DAY)
        clock.now()
    assert clock.now() == pytest.approx(1000.0 + 3 * (SETTLE_SECONDS - 1))


def test_a_small_lead_is_followed_at_once() -> None:
    """Time servers correct a clock by seconds all the time."""
    time = ManualTime(wall=1000.0)
    clock = time.clock()
    time.step_wall(SMALL_STEP_SECONDS)
    assert clock.now() == 1000.0 + SMALL_STEP_SECONDS


def test_time_never_starts_before_the_newest_change() -> None:
    """A store that is opened while the wall clock stands at 1970 goes on from where it was."""
    time = ManualTime(wall=10.0)
    clock = time.clock()
    clock.never_before(5_000.0)
    assert clock.now() == 5_000.0
    time.pass_seconds(1)
    assert clock.now() == 5_001.0
    clock.never_before(100.0)
    assert clock.now() == 5_001.0


def test_now_never_decreases_over_any_steps() -> None:
    """The one property that everything above rests on."""
    time = ManualTime()
    clock = time.clock()
    last = clock.now()
    for index, step in enumerate([5.0, -3.0, DAY, -2 * DAY, 0.5, -0.25, 9.9, -9.9, 400 * DAY, -1.0] * 3):
        time.step_wall(step)
        time.pass_seconds(index * 200.0)
        now = clock.now()
        assert now >= last
        last = now
