"""Recognising an argument that was meant to be another one.

Clients add arguments of their own, and those are ignored. But an argument that misses the name of a
known one by a letter or a word must not be: a save whose `expected_version` is dropped overwrites.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_MIN_RATIO = 0.8
_MAX_CHARS = 60
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_WORD = re.compile(r"[^a-z0-9]+")


def find_missed(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that `name` was probably meant to be, or None.

    A name misses a candidate if both are nearly the same letters (`expect_verison`), or if the words
    of one are among the words of the other (`version`, `handleId`).

    Args:
        name: An argument that the tool does not know.
        candidates: The tool's parameters that were not given, in snake_case.
    """
    if len(name) > _MAX_CHARS:
        return None
    spelled = _NOT_WORD.sub("_", _CAMEL.sub("_", name).lower()).strip("_")
    words = set(spelled.split("_"))
    best, best_ratio = None, _MIN_RATIO
    for candidate in candidates:
        candidate_words = set(candidate.split("_"))
        if words <= candidate_words or candidate_words <= words:
            return candidate
        ratio = SequenceMatcher(None, spelled, candidate).ratio()
        if ratio >= best_ratio:
            best, best_ratio = candidate, ratio
    return best
