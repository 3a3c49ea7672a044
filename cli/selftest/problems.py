"""What can be wrong with a history, in one word for programs and a sentence for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "lost",
    "doubled",
    "ghost",
    "version_twice",
    "gap",
    "order",
    "stale_read",
    "backward_read",
    "wrong_conflict",
    "missed_conflict",
    "wrong_not_found",
    "undead",
    "content",
    "metadata",
    "refused",
    "no_answer",
    "undecided",
    "unread",
    "store",
    "broken",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that must not be."""

    kind: Kind
    handle: str
    what: str
