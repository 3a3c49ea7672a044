"""What the shim remembers: the lines that are not settled yet, and the lines to keep.

A line is settled when nothing more will come for it. Some settled lines (the handshake of the legacy
era) are kept, because the next daemon must hear them too; which ones, the daemon says.
"""

from __future__ import annotations

from mcpstated.protocol.messages import FRESH, KEPT, RESENT

_LINE_OVERHEAD_BYTES = 256
"""What a line weighs beside its bytes, so that a million tiny lines are not free."""


class Unsettled:
    """The memory of one shim. Numbers count up from 1 over all connections."""

    __slots__ = ("_forwarded", "_kept", "_last", "_lines", "weight_bytes")

    def __init__(self) -> None:
        self._lines: dict[int, bytes] = {}
        self._kept: dict[int, bytes] = {}
        self._last = 0
        self._forwarded = 0
        """Lines go out in order, so one number tells which ones some daemon may have seen."""
        self.weight_bytes = 0
        """Roughly the memory that the unsettled lines take."""

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, line: bytes) -> int:
        """Remember a new line and return its number."""
        self._last += 1
        self._lines[self._last] = line
        self.weight_bytes += len(line) + _LINE_OVERHEAD_BYTES
        return self._last

    def settle(self, seq: int, keep: bool = False) -> bool:
        """Forget a line, or move it to the kept ones; False if it was settled before."""
        line = self._lines.pop(seq, None)
        if line is None:
            return False
        self.weight_bytes -= len(line) + _LINE_OVERHEAD_BYTES
        if keep:
            self._kept[seq] = line
        return True

    def note_forwarded(self, seq: int) -> None:
        """From now on a daemon may have seen this line."""
        self._forwarded = max(self._forwarded, seq)

    def was_forwarded(self, seq: int) -> bool:
        """True if a daemon may have seen, and applied, this line."""
        return seq <= self._forwarded

    @property
    def floor(self) -> int:
        """Every line below this number is settled."""
        return next(iter(self._lines), self._last + 1)

    def replay(self) -> list[tuple[int, int, bytes]]:
        """Return (number, mode, line) of all that a new daemon must be sent, in order."""
        again = [(seq, KEPT, line) for seq, line in sorted(self._kept.items())]
        for seq, line in self._lines.items():
            again.append((seq, RESENT if self.was_forwarded(seq) else FRESH, line))
        return again

    def take_all(self) -> list[tuple[int, bytes]]:
        """Settle every line without an answer, and return them in order."""
        taken = list(self._lines.items())
        self._lines.clear()
        self.weight_bytes = 0
        return taken
