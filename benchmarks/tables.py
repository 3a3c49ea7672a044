"""The result of a run as text for a terminal, as JSON and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from machine import Machine
from rows import Row, Sample

_HEADINGS = ("figure", "mcpstated", "beside", "its value", "ratio p50", "ratio p99", "to reach", "met")
_RATE = "calls/s"
"""A unit of which the 99th percentile is the best round, which nobody asks for."""


@dataclass(frozen=True, slots=True)
class Report:
    """One run: where, with which versions, and what came out."""

    machine: Machine
    versions: dict[str, str]
    is_quick: bool
    rows: tuple[Row, ...]


def as_text(report: Report) -> str:
    """Return the table for a terminal, values as `median (p99)`."""
    lines = [list(_HEADINGS), *(_cells(row) for row in report.rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    table.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*table, "", *_captions(report)]) + "\n"


def as_markdown(report: Report) -> str:
    """Return the table as Markdown, values as `median (p99)`."""
    lines = [_markdown_line(_HEADINGS), _markdown_line(["---"] * len(_HEADINGS))]
    lines += [_markdown_line(_cells(row)) for row in report.rows]
    return "\n".join([*lines, "", *_captions(report)]) + "\n"


def as_json(report: Report) -> str:
    """Return everything, the single values included."""
    rows = [
        {
            "figure": row.figure,
            "unit": row.unit,
            "ours": _sample(row.ours),
            "against": row.against or None,
            "other": _sample(row.other) if row.other else None,
            "ratio_median": row.ratio_median,
            "ratio_p99": row.ratio_p99,
            "target": asdict(row.target) if row.target else None,
            "is_met": row.is_met,
        }
        for row in report.rows
    ]
    head = {"machine": asdict(report.machine), "versions": report.versions, "is_quick": report.is_quick}
    return json.dumps({**head, "rows": rows}, indent=2) + "\n"


def _cells(row: Row) -> list[str]:
    return [
        row.figure,
        _value(row.ours, row.unit),
        row.against,
        _value(row.other, row.unit) if row.other else "",
        _ratio(row.ratio_median),
        _ratio(row.ratio_p99) if row.other and len(row.other.values) > 1 and row.unit != _RATE else "",
        row.target.label if row.target else "",
        {True: "yes", False: "NO", None: ""}[row.is_met],
    ]


def _captions(report: Report) -> list[str]:
    machine = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    file_system = machine.file_system or "an unknown file system"
    where = (
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib:g} GiB, {machine.kernel}, {file_system}"
    )
    lines = [
        "Values are median (99th percentile); a ratio is mcpstated's value divided by the one beside it.",
        f"{machine.date}, {where}, Python {machine.python}; {versions}.",
    ]
    if report.is_quick:
        lines.append("A quick run: it shows that everything works; its figures mean little.")
    return lines


def _value(sample: Sample, unit: str) -> str:
    median = _number(sample.median)
    suffix = f" {unit}" if unit else ""
    if len(sample.values) == 1 or unit == _RATE:
        return f"{median}{suffix}"
    return f"{median} ({_number(sample.p99)}){suffix}"


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.3f}" if ratio < 1 else f"{ratio:.2f}"


def _sample(sample: Sample) -> dict[str, object]:
    return {
        "median": sample.median,
        "p99": sample.p99,
        "count": len(sample.values),
        "values": list(sample.values),
    }


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
