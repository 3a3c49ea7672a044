"""Cutting what the client writes into lines: on byte 0x0A only, and within a bound.

JSON text may hold U+2028 and other characters that line splitters of other languages know, so bytes
are all that counts. A line that no frame can carry is skipped to its end without being stored.
"""

from __future__ import annotations

NEWLINE = b"\n"


class LineReader:
    """Bytes in, lines out.

    Args:
        max_line_bytes: The longest line that is returned; may be changed at any time.
    """

    __slots__ = ("_begun", "_is_skipping", "max_line_bytes")

    def __init__(self, max_line_bytes: int) -> None:
        self._begun = bytearray()
        self._is_skipping = False
        self.max_line_bytes = max_line_bytes

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that `data` ends, verbatim and without their newline.

        Blank lines are left out; None stands for a line that was too long.
        """
        *ended, begun = data.split(NEWLINE)
        lines: list[bytes | None] = []
        for piece in ended:
            self._extend(piece)
            lines += self.finish()
        self._extend(begun)
        return lines

    def finish(self) -> list[bytes | None]:
        """Return what has begun as if a newline had come (at most one line), and begin anew."""
        if self._is_skipping:
            self._is_skipping = False
            return [None]
        line = bytes(self._begun)
        self._begun.clear()
        return [line] if line.strip() else []

    def _extend(self, piece: bytes) -> None:
        if not self._is_skipping:
            self._begun += piece
            if len(self._begun) > self.max_line_bytes:
                self._begun.clear()
                self._is_skipping = True
