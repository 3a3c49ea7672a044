"""Many clients that append to one handle at the same time: calls a second, waiting time, losses, memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from appends import append_together
from bench import Bench, Store
from clients import Client
from processes import total_rss_bytes
from rows import Row, Sample, Target, megabytes, milliseconds


@dataclass(slots=True)
class _Side:
    store: Store
    clients: list[Client]
    seconds: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    refused: int = 0
    landed: int = 0


def measure_contention(bench: Bench) -> list[Row]:
    """All clients append 100 bytes at a time to one handle; both sides in turns, a new handle each time."""
    counts = bench.counts
    with bench.store(bench.ours) as ours, bench.store(bench.theirs) as theirs:
        sides = [
            _Side(store, [store.client() for _ in range(counts.crowd_clients)]) for store in (ours, theirs)
        ]
        for side in sides:
            append_together(side.store.server, side.clients, calls=3)  # warms every process up
        for _ in range(counts.crowd_rounds):
            for side in sides:
                _round(side, counts.crowd_calls)
        memory = [total_rss_bytes(side.store.pids()) for side in sides]
    return _rows(
        f"{counts.crowd_clients} clients appending to one handle", bench.theirs.label, *sides, *memory
    )


def _round(side: _Side, calls: int) -> None:
    outcome = append_together(side.store.server, side.clients, calls=calls)
    side.refused += outcome.refused
    side.landed += outcome.landed
    side.seconds += outcome.seconds
    side.rates.append(len(outcome.seconds) / outcome.total_seconds)


def _rows(
    figure: str, label: str, ours: _Side, theirs: _Side, our_memory: int, their_memory: int
) -> list[Row]:
    return [
        Row(
            f"{figure}: calls a second",
            "calls/s",
            Sample(tuple(ours.rates)),
            label,
            Sample(tuple(theirs.rates)),
            Target("at least 8", at_least=8.0),
        ),
        Row(
            f"{figure}: time of a call",
            "ms",
            milliseconds(ours.seconds),
            label,
            milliseconds(theirs.seconds),
            Target("p99 at most 1/20", at_most=1 / 20, statistic="p99"),
        ),
        Row(
            f"{figure}: landed exactly once",
            "%",
            _share(ours.landed, len(ours.seconds)),
            label,
            _share(theirs.landed, len(theirs.seconds)),
            Target("100 %", at_least=100.0, statistic="ours"),
        ),
        Row(
            f"{figure}: refused",
            "%",
            _share(ours.refused, len(ours.seconds)),
            label,
            _share(theirs.refused, len(theirs.seconds)),
            Target("none", at_most=0.0, statistic="ours"),
        ),
        Row(
            f"{figure}: memory of all processes",
            "MB",
            megabytes([our_memory]),
            label,
            megabytes([their_memory]),
            Target("at most 1/4", at_most=0.25),
        ),
    ]


def _share(part: int, whole: int) -> Sample:
    return Sample((100 * part / whole,))
