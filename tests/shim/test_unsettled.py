"""Ring 1: what the shim remembers."""

from __future__ import annotations

import pytest

from mcpstated.protocol.messages import FRESH, KEPT, RESENT
from mcpstated.shim.unsettled import Unsettled


@pytest.mark.requirement("P2")
def test_a_new_daemon_gets_kept_lines_then_unsettled_ones_in_order() -> None:
    """P2: the handshake must be heard before the calls, and calls in the order they were made."""
    memory = Unsettled()
    for number, line in enumerate((b"initialize", b"initialized", b"call 3", b"call 4"), start=1):
        assert memory.add(line) == number
        memory.note_forwarded(number)
    memory.settle(2, keep=True)
    memory.settle(1, keep=True)
    memory.settle(3)
    memory.add(b"call 5")

    assert memory.replay() == [
        (1, KEPT, b"initialize"),
        (2, KEPT, b"initialized"),
        (4, RESENT, b"call 4"),
        (5, FRESH, b"call 5"),
    ]


@pytest.mark.requirement("P2")
def test_a_line_settles_once() -> None:
    """P2: whatever a daemon says twice, the client hears once."""
    memory = Unsettled()
    memory.add(b"call")
    assert memory.settle(1)
    assert not memory.settle(1)
    assert not memory.settle(7)


def test_the_floor_is_the_oldest_unsettled_line() -> None:
    """The daemon forgets what it did for lines below it, so it must never be too high."""
    memory = Unsettled()
    assert memory.floor == 1
    memory.add(b"a")
    memory.add(b"b")
    memory.add(b"c")
    memory.settle(2)
    assert memory.floor == 1
    memory.settle(1)
    assert memory.floor == 3
    memory.settle(3)
    assert memory.floor == 4


@pytest.mark.requirement("P6")
def test_the_weight_counts_lines_as_well_as_bytes() -> None:
    """P6: a million empty calls must not be free."""
    memory = Unsettled()
    for _ in range(1000):
        memory.add(b"x")
    assert memory.weight_bytes > 100_000
    for seq in range(1, 1001):
        memory.settle(seq)
    assert memory.weight_bytes == 0


@pytest.mark.requirement("P2")
def test_lines_that_were_given_up_are_never_sent_again() -> None:
    """P2: the client has had an answer; the call must not be applied after it."""
    memory = Unsettled()
    memory.add(b"a")
    memory.note_forwarded(1)
    memory.add(b"b")
    assert memory.take_all() == [(1, b"a"), (2, b"b")]
    assert memory.was_forwarded(1)
    assert not memory.was_forwarded(2)
    assert memory.replay() == []
    assert (len(memory), memory.weight_bytes, memory.add(b"c")) == (0, 0, 3)
