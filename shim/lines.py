"""Cutting what the client writes into lines: on byte 0x0A only, and within a bound.

JSON text may hold U+2028 and other characters that line splitters of other languages know, so bytes
are all that counts. Of a line that no frame can carry only the two ends are kept.
"""

from __future__ import annotations

NEWLINE = b"\n"
KEPT_BYTES = 4096
"""What is kept of each end of a line that is skipped: the id of a request stands in one of them."""


class Skipped:
    """The two ends of a line that was too long; they may overlap."""

    __slots__ = ("head", "tail")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head = head
        self.tail = tail

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Skipped) and (self.head, self.tail) == (other.head, other.tail)

    __hash__ = None  # type: ignore[assignment]  # nobody keeps them


class LineReader:
    """Bytes in, lines out.

    Args:
        max_line_bytes: The longest line that is returned; may be changed at any time.
    """

    __slots__ = ("_begun", "_head", "max_line_bytes")

    def __init__(self, max_line_bytes: int) -> None:
        self._begun = bytearray()
        self._head: bytes | None = None
        """The first bytes of the line that is being skipped; `_begun` then holds its newest ones."""
        self.max_line_bytes = max_line_bytes

    def feed(self, data: bytes) -> list[bytes | Skipped]:
        """Return the lines that `data` ends, verbatim and without their newline.

        Blank lines are left out.
        """
        *ended, begun = data.split(NEWLINE)
        lines: list[bytes | Skipped] = []
        for piece in ended:
            self._extend(piece)
            lines += self.finish()
        self._extend(begun)
        return lines

    def finish(self) -> list[bytes | Skipped]:
        """Return what has begun as if a newline had come (at most one line), and begin anew."""
        line, head = bytes(self._begun), self._head
        self._begun.clear()
        self._head = None
        if head is not None:
            return [Skipped(head, line[-KEPT_BYTES:])]
        return [line] if line.strip() else []

    def _extend(self, piece: bytes) -> None:
        self._begun += piece
        if self._head is None:
            if len(self._begun) > self.max_line_bytes:
                self._head = bytes(self._begun[:KEPT_BYTES])
                del self._begun[:-KEPT_BYTES]
            return
        self._head += piece[: KEPT_BYTES - len(self._head)]
        if len(self._begun) > KEPT_BYTES:
            del self._begun[:-KEPT_BYTES]
