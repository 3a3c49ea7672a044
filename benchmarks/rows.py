"""What a measurement ends in: rows of our figure, the other's, their ratios, and what was to be reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


@dataclass(frozen=True, slots=True)
class Sample:
    """All measured values of one quantity, in one unit."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return quantile(self.values, 0.5)

    @property
    def p99(self) -> float:
        return quantile(self.values, 0.99)


@dataclass(frozen=True, slots=True)
class Target:
    """What a row must reach.

    Exactly one of the bounds is set.
    """

    label: str
    at_most: float | None = None
    at_least: float | None = None
    statistic: Literal["median", "p99", "ours"] = "median"
    """What is bound: the ratio ours / other of medians or of 99th percentiles, or our own median."""

    def is_met_by(self, value: float) -> bool:
        if self.at_most is not None:
            return value <= self.at_most
        assert self.at_least is not None
        return value >= self.at_least


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    figure: str
    unit: str
    """ms, MB, calls/s, bytes, % or nothing for a count."""
    ours: Sample
    against: str = ""
    """What `other` is: mcpstate, a bare interpreter, or our own figure elsewhere."""
    other: Sample | None = None
    target: Target | None = None

    @property
    def ratio_median(self) -> float | None:
        return _ratio(self.ours.median, self.other.median) if self.other else None

    @property
    def ratio_p99(self) -> float | None:
        return _ratio(self.ours.p99, self.other.p99) if self.other else None

    @property
    def is_met(self) -> bool | None:
        """True or False if there is a target, None if the row only informs."""
        if self.target is None:
            return None
        value = {"median": self.ratio_median, "p99": self.ratio_p99, "ours": self.ours.median}[
            self.target.statistic
        ]
        return value is not None and self.target.is_met_by(value)


def _ratio(ours: float, other: float) -> float | None:
    return ours / other if other else None


def milliseconds(seconds: Sequence[float]) -> Sample:
    """Return a sample in ms of times in seconds."""
    return Sample(tuple(value * 1000 for value in seconds))


def megabytes(sizes: Sequence[int]) -> Sample:
    """Return a sample in MB (10^6 bytes) of sizes in bytes."""
    return Sample(tuple(size / 1e6 for size in sizes))
