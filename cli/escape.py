"""Make text from anywhere safe to show in a terminal.

A state may hold any Unicode. Written to a terminal as it is, an escape sequence in it could move the
cursor, rewrite what was printed before or set the window's title, and a direction override could make
a line read as another. Such characters are shown by their number instead.
"""

from __future__ import annotations

import re

# C0 and C1 controls with DEL; direction marks, embeddings, overrides and isolates; line and paragraph
# separators; the byte order mark; tags (invisible copies of ASCII); lone surrogates.
_UNSAFE = (
    "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f\ud800-\udfff"
)
_ANY = re.compile(f"[{_UNSAFE}]")
_ANY_BUT_LAYOUT = re.compile(f"(?![\n\t])[{_UNSAFE}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, keep_layout: bool = False) -> str:
    r"""Return `text` with everything that a terminal would obey written out, as in `\x1b[2J`.

    Args:
        keep_layout: Leave line breaks and tabs; for text whose lines are ours.
    """
    return (_ANY_BUT_LAYOUT if keep_layout else _ANY).sub(_written_out, text)


def json_visible(text: str) -> str:
    r"""Return a JSON text that means the same and holds nothing that a terminal would obey.

    JSON leaves C1 controls and direction overrides bare in its strings, and nowhere else can they
    stand; there `\u009b` is the same character.
    """
    return _ANY_BUT_LAYOUT.sub(_json_escaped, text)


def _written_out(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )


def _json_escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
