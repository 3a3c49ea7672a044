"""What one client's misbehaviour costs another: an append alone, and beside each kind, in turns."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import Bench, Store
from clients import Client, ServerGone
from documents import append, mint
from processes import peak_rss_bytes
from rows import Row, Target, megabytes, milliseconds

_PROGRAM = Path(__file__).resolve().parent.parent / "misbehave.py"
_SMALL_BYTES = 1_000
_ALONE = "our p99 alone"

KINDS = {
    "queue": "10,000 tool calls queued by one client",
    "requests": "10,000 requests queued by one program",
    "huge_saves": "a client that saves 1 MiB without a pause",
    "stalled_reader": "a program that asks for 1 MiB 1,000 times and never reads",
    "stalled_shim": "an agent that asks for 1 MiB 1,000 times and never reads",
    "slow_writers": "32 clients that write a byte at a time",
    "half_frames": "256 clients with half a frame of 1 MiB",
    "three_bytes": "200 clients that say 3 bytes",
    "giant_header": "frame headers for 4 GiB",
    "empty_maps": "frames of 16 MiB of empty maps",
    "tiny_containers": "lines of 16 MiB of empty lists",
    "long_strings": "lines of 15 MiB of text",
    "connections": "connections opened and closed without a pause",
    "idle_connections": "1,000 connections that never say hello",
    "garbage": "malformed lines without a pause",
    "watches": "8 clients with as many watches as they get",
}
"""The ways to misbehave, as `misbehave.py` knows them, and what they are called in the table."""


def measure_fairness(bench: Bench) -> list[Row]:
    """Time appends of a client that does nothing wrong; the daemon is a new one for each kind."""
    rows: list[Row] = []
    for kind, figure in KINDS.items():
        with bench.store(bench.ours) as store:
            rows += _rows(bench, store, kind, figure)
    return rows


def _rows(bench: Bench, store: Store, kind: str, figure: str) -> list[Row]:
    counts = bench.counts
    client = store.client()
    handle = str(client.must("state_save", mint(_SMALL_BYTES))["handle"])
    _append(client, handle, counts.fair_calls)  # warms every process up
    (pid,) = store.server.shared_pids(store.directory)
    before = peak_rss_bytes(pid)
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(counts.fair_rounds):
        alone += _append(client, handle, counts.fair_calls)
        with _misbehaving(bench, store, kind):
            _append(client, handle, counts.fair_calls // 4)
            beside += _append(client, handle, counts.fair_calls)
    return [
        Row(
            f"append beside {figure}",
            "ms",
            milliseconds(beside),
            _ALONE,
            milliseconds(alone),
            Target("p99 at most 2", at_most=2.0, statistic="p99"),
        ),
        Row(
            f"most memory of the daemon beside {figure}",
            "MB",
            megabytes([peak_rss_bytes(pid)]),
            "before",
            megabytes([before]),
        ),
    ]


def _append(client: Client, handle: str, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        reply = client.call("state_patch", append(handle))
        assert not reply.is_refused, reply.message
        seconds.append(reply.seconds)
    return seconds


@contextmanager
def _misbehaving(bench: Bench, store: Store, kind: str) -> Iterator[None]:
    """Run one misbehaving process as long as the block takes."""
    path = store.directory / "data" / "daemon.sock"
    with subprocess.Popen(
        [bench.python, str(_PROGRAM), kind, str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={},
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise ServerGone(f"misbehave.py {kind} did not begin")
            yield
        finally:
            process.kill()
