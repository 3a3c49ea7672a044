"""Measures this checkout beside an earlier revision of itself, in turns, in one run.

    python3 benchmarks/against.py REVISION [--rounds N] [--at-most RATIO] [--work-dir DIR]

For what a change costs: both are installed from wheels, each has a daemon and a client of its own, and a
round of one is followed by a round of the other. Exit code 1 if the median of the appends passes RATIO.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from bench import Counts, Store, say
from environments import CannotInstall, default_work_dir, install_checkout, install_revision
from measures.calls import measure_rounds
from rows import milliseconds
from servers import Mcpstated, package_version

CHECKOUT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Install both, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", help="any name that git knows")
    parser.add_argument(
        "--rounds", type=int, default=40, help="of 50 loads and 50 appends (default: %(default)s)"
    )
    parser.add_argument(
        "--at-most", type=float, default=1.1, help="for the append's median (default: %(default)s)"
    )
    parser.add_argument("--work-dir", default=default_work_dir(), help="default: %(default)s")
    options = parser.parse_args()
    work_dir = Path(options.work_dir).resolve()
    say(f"installing both in {work_dir}")
    try:
        now = install_checkout(CHECKOUT, work_dir, sys.executable)
        then = install_revision(CHECKOUT, options.revision, work_dir, sys.executable)
    except CannotInstall as error:
        sys.exit(f"cannot install: {error}")
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=work_dir))
    stores = (
        Store(Mcpstated(now, package_version(now, "mcpstated")), scratch / "now"),
        Store(Mcpstated(then, options.revision), scratch / "then"),
    )
    try:
        for store in stores:
            store.directory.mkdir()
        loads, appends = measure_rounds(stores, Counts(rounds=options.rounds, calls_per_round=50))
    finally:
        for store in stores:
            store.end()
        shutil.rmtree(scratch, ignore_errors=True)
    ratio = 1.0
    for figure, (ours, theirs) in (("load 1 KB", loads), ("append to 1 KB", appends)):
        now_ms, then_ms = milliseconds(ours), milliseconds(theirs)
        ratio = now_ms.median / then_ms.median
        print(
            f"{figure}: {now_ms.median:.3f} ({now_ms.p99:.2f}) ms, {options.revision}: {then_ms.median:.3f} "
            f"({then_ms.p99:.2f}) ms, ratio of medians {ratio:.3f}"
        )
    print(f"append at most {options.at_most:g}: {'yes' if ratio <= options.at_most else 'NO'}")
    return 0 if ratio <= options.at_most else 1


if __name__ == "__main__":
    sys.exit(main())
