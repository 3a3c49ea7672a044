"""What a line or a document in a request costs to read, known before it is read.

A parser turns `[]` into a value of a hundred times its size and does not give the event loop back until it
has read everything. The marks between values say beforehand how many there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpstated.protocol.limits import Limits

LARGE_BYTES = 64 * 1024
"""Text up to this size is not worth counting."""
_MARKS = b"[{,:"
_AROUND = 64 * 1024
"""Marks that a message may have around its document."""
_PORTION_BYTES = 1024 * 1024


def marks_allowed(limits: Limits) -> int:
    """Return how many marks a message may hold; a document has fewer than it may have bytes."""
    return limits.max_state_bytes + _AROUND


def count_marks(text: bytes, *, stop_above: int) -> int:
    """Return how many brackets, commas and colons there are, or some number above `stop_above`.

    Those inside strings count too: what matters is that there are not too many.
    """
    marks = 0
    for start in range(0, len(text), _PORTION_BYTES):
        portion = text[start : start + _PORTION_BYTES]
        marks += len(portion) - len(portion.translate(None, _MARKS))
        if marks > stop_above:
            break
    return marks


def too_many_marks(limits: Limits) -> str:
    """Return why a message that holds more values than the largest document could is not read."""
    return (
        f"The message holds more than {marks_allowed(limits)} values and names, and no state can have so "
        "many. Nothing was done; send less at once."
    )
