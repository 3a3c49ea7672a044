"""What a command wants people to see, as values; `render` turns them into text.

Every string in a block is data: nothing in it is markup, and control characters in it are shown, not
obeyed. So a command may put text from a state, a title or a log line into any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone = Literal["plain", "good", "bad", "dim", "strong"]


@dataclass(frozen=True, slots=True)
class Line:
    """One paragraph, wrapped to the terminal."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Fields:
    """Names and their values, one below the other."""

    rows: tuple[tuple[str, str], ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    A column with a `rank` is left out where the terminal is too narrow for all; the highest rank goes
    first. `grows` marks the one that takes the space that is left.
    """

    name: str
    is_number: bool = False
    rank: int = 0
    grows: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """A table."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    empty: str = ""
    """Said instead of a table without rows."""


@dataclass(frozen=True, slots=True)
class JsonText:
    """A JSON text with its line breaks; never wrapped, so that it can be copied."""

    text: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines as they are; never wrapped, and line breaks and tabs are kept."""

    text: str


Block: TypeAlias = Line | Fields | Rows | JsonText | Verbatim
