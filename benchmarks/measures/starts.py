"""From the start of a client's process to its first answer, and the memory that the process then holds."""

from __future__ import annotations

import subprocess
import time

from bench import Bench, Store
from processes import rss_bytes
from rows import Row, Target, megabytes, milliseconds

BARE = "python -c pass"


def measure_warm_start(bench: Bench) -> list[Row]:
    """A client's start while the daemon runs and both databases exist."""
    bare: list[float] = []
    times: dict[str, list[float]] = {bench.ours.name: [], bench.theirs.name: []}
    with bench.store(bench.ours) as ours, bench.store(bench.theirs) as theirs:
        for store in (ours, theirs):
            store.client()  # starts the daemon, makes the database, warms the disk cache
            _first_answer(store)
        for _ in range(bench.counts.starts):
            bare.append(_bare_start(bench.python))
            for store in (ours, theirs):
                times[store.server.name].append(_first_answer(store))
    sample = milliseconds(times[bench.ours.name])
    figure = "shim start to first answer, daemon running"
    return [
        Row(figure, "ms", sample, BARE, milliseconds(bare), Target("at most 4", at_most=4.0)),
        Row(
            figure,
            "ms",
            sample,
            bench.theirs.label,
            milliseconds(times[bench.theirs.name]),
            Target("at most 1/12", at_most=1 / 12),
        ),
    ]


def measure_cold_start(bench: Bench) -> list[Row]:
    """A client's start with no daemon, in an empty directory."""
    times: dict[str, list[float]] = {bench.ours.name: [], bench.theirs.name: []}
    for turn in range(bench.counts.cold_starts + 1):
        for server in (bench.ours, bench.theirs):
            with bench.store(server) as store:
                seconds = store.start().initialize()
            if turn:  # the first turn only fills the disk cache
                times[server.name].append(seconds)
    return [
        Row(
            "start to first answer, no daemon yet",
            "ms",
            milliseconds(times[bench.ours.name]),
            bench.theirs.label,
            milliseconds(times[bench.theirs.name]),
            Target("at most 1.5", at_most=1.5),
        )
    ]


def measure_memory(bench: Bench) -> list[Row]:
    """Resident memory of one client's process after its first call."""
    with bench.store(bench.ours) as ours, bench.store(bench.theirs) as theirs:
        sizes = {
            store.server.name: _sizes_after_a_call(store, bench.counts.starts) for store in (ours, theirs)
        }
    bare = [_bare_rss_bytes(bench.python) for _ in range(bench.counts.starts)]
    figure = "shim memory (RSS)"
    sample = megabytes(sizes[bench.ours.name])
    return [
        Row(figure, "MB", sample, "a bare interpreter", megabytes(bare), Target("at most 1.5", at_most=1.5)),
        Row(
            figure,
            "MB",
            sample,
            bench.theirs.label,
            megabytes(sizes[bench.theirs.name]),
            Target("at most 1/7", at_most=1 / 7),
        ),
    ]


def _first_answer(store: Store) -> float:
    client = store.start()
    seconds = client.initialize()
    store.close(client)
    return seconds


def _sizes_after_a_call(store: Store, count: int) -> list[int]:
    sizes = []
    for _ in range(min(count, 5)):
        client = store.client()
        client.must("state_list", {})
        sizes.append(rss_bytes(client.process.pid))
        store.close(client)
    return sizes


def _bare_start(python: str) -> float:
    started = time.perf_counter()
    subprocess.run([python, "-c", "pass"], stdin=subprocess.DEVNULL, env={}, check=True)
    return time.perf_counter() - started


def _bare_rss_bytes(python: str) -> int:
    """Return the memory of an interpreter that has started and waits for input."""
    program = "import sys; sys.stdout.write('.'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [python, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.read(1)
        size = rss_bytes(process.pid)
        process.stdin.close()
        process.wait()
    return size
