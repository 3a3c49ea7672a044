"""Measures mcpstated beside mcpstate 0.2.0, in one run, on installed wheels of both.

    python3 benchmarks/run.py [--quick] [--only FIGURE]... [--json FILE] [--markdown FILE]

Needs nothing but Python 3.11 with venv, and a package index for pip; where Node.js is present, a row
about server-memory is measured too. The measuring process runs on the standard library alone.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import QUICK, Bench, Counts, say
from environments import (
    CannotInstall,
    default_work_dir,
    install_checkout,
    install_mcpstate,
    install_server_memory,
)
from machine import describe
from measures.calls import measure_big_document, measure_calls
from measures.contention import measure_contention
from measures.fairness import measure_fairness
from measures.lost_writes import measure_lost_writes
from measures.starts import measure_cold_start, measure_memory, measure_warm_start
from measures.stores import measure_list, measure_many_handles
from measures.tool_list import measure_tool_list
from rows import Row
from servers import Mcpstate, Mcpstated, ServerMemory, npm_version, package_version
from tables import Report, as_json, as_markdown, as_text

CHECKOUT = Path(__file__).resolve().parent.parent
FIGURES: dict[str, Callable[[Bench], list[Row]]] = {
    "start": measure_warm_start,
    "memory": measure_memory,
    "cold": measure_cold_start,
    "calls": measure_calls,
    "big": measure_big_document,
    "crowd": measure_contention,
    "list": measure_list,
    "many": measure_many_handles,
    "tools": measure_tool_list,
    "lost": measure_lost_writes,
    "fairness": measure_fairness,
}


def main() -> int:
    """Install, measure, print; exit 1 if a target was missed."""
    options = _options()
    work_dir = Path(options.work_dir).resolve()
    if work_dir.is_relative_to(CHECKOUT):
        sys.exit(f"{work_dir} lies inside the checkout; choose another --work-dir")
    try:
        bench = _prepare(work_dir, options.python, QUICK if options.quick else Counts())
    except CannotInstall as error:
        sys.exit(f"cannot install: {error}")
    rows: list[Row] = []
    try:
        for name in options.only or FIGURES:
            say(f"measuring {name}")
            started = time.monotonic()
            rows += FIGURES[name](bench)
            say(f"  took {time.monotonic() - started:.0f} s")
    finally:
        shutil.rmtree(bench.scratch, ignore_errors=True)
    servers = (bench.ours, bench.theirs, bench.memory)
    report = Report(
        machine=describe(bench.python, work_dir),
        versions={server.name: server.version for server in servers if server},
        is_quick=options.quick,
        rows=tuple(rows),
    )
    print(as_text(report))
    if options.json:
        Path(options.json).write_text(as_json(report))
    if options.markdown:
        Path(options.markdown).write_text(as_markdown(report))
    missed = [row for row in rows if row.is_met is False]
    return 1 if missed and not options.quick else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    parser.add_argument(
        "--only", action="append", choices=sorted(FIGURES), help="measure this figure; may be repeated"
    )
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON")
    parser.add_argument("--markdown", metavar="FILE", help="write the table as Markdown")
    parser.add_argument(
        "--work-dir",
        metavar="DIR",
        default=default_work_dir(),
        help="where installations are kept (default: %(default)s)",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        default=sys.executable,
        help="the interpreter for both sides (default: this one)",
    )
    return parser.parse_args()


def _prepare(work_dir: Path, python: str, counts: Counts) -> Bench:
    say(f"installing both sides in {work_dir}")
    ours = install_checkout(CHECKOUT, work_dir, python)
    theirs = install_mcpstate(work_dir, python)
    program = install_server_memory(work_dir)
    node = shutil.which("node")
    memory = ServerMemory(node, program, npm_version(program)) if node and program else None
    return Bench(
        ours=Mcpstated(ours, package_version(ours, "mcpstated")),
        theirs=Mcpstate(theirs, package_version(theirs, "mcpstate")),
        memory=memory,
        python=str(ours / "python"),
        counts=counts,
        # Beside the installations, so on the same disk: /tmp may be memory, where writes cost nothing.
        scratch=Path(tempfile.mkdtemp(prefix="run-", dir=work_dir)),
    )


if __name__ == "__main__":
    sys.exit(main())
