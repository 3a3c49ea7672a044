"""What one client waits for: a load and an append, on a small document and on a big one."""

from __future__ import annotations

from bench import Bench, Counts, Store
from clients import Client
from documents import append, mint
from processes import written_bytes
from rows import Row, Sample, Target, milliseconds

Pair = tuple[list[float], list[float]]
SMALL_BYTES = 1_000
BIG_BYTES = 900_000


def measure_calls(bench: Bench) -> list[Row]:
    """Load and append on a document of 1 KB, one call at a time, both sides in turns."""
    with bench.store(bench.ours) as ours, bench.store(bench.theirs) as theirs:
        loads, appends = measure_rounds((ours, theirs), bench.counts)
    return [
        Row(figure, "ms", milliseconds(ours), bench.theirs.label, milliseconds(theirs), target)
        for figure, (ours, theirs), target in (
            ("load 1 KB, one client", loads, Target("at most 0.75", at_most=0.75)),
            ("append to 1 KB, one client", appends, Target("at most 0.9", at_most=0.9)),
        )
    ]


def measure_rounds(stores: tuple[Store, Store], counts: Counts) -> tuple[Pair, Pair]:
    """Return the seconds of all loads and of all appends on two stores, one client each, in turns."""
    loads: Pair = ([], [])
    appends: Pair = ([], [])
    clients = [store.client() for store in stores]
    for turn in range(counts.rounds + 2):
        for side, client in enumerate(clients):
            batch = _round(client, counts.calls_per_round)
            if turn >= 2:
                loads[side].extend(batch[0])
                appends[side].extend(batch[1])
    return loads, appends


def measure_big_document(bench: Bench) -> list[Row]:
    """Appends of 100 bytes to a document of 900 KB: time, and bytes that go to the disk."""
    with bench.store(bench.ours) as ours, bench.store(bench.theirs) as theirs:
        stores = (ours, theirs)
        clients = {store.server.name: store.client() for store in stores}
        big = {
            name: str(client.must("state_save", mint(BIG_BYTES, item_bytes=1000))["handle"])
            for name, client in clients.items()
        }
        times: dict[str, list[float]] = {name: [] for name in clients}
        small: list[float] = []
        written: dict[str, list[float]] = {name: [] for name in clients}
        for turn in range(bench.counts.big_rounds + 1):
            batches = {
                store.server.name: _big_round(store, clients, big, bench.counts.big_calls_per_round)
                for store in stores
            }
            own_small = _round(clients[bench.ours.name], bench.counts.big_calls_per_round)[1]
            if turn:
                small += own_small
                for name, (seconds, bytes_each) in batches.items():
                    times[name] += seconds
                    written[name] += bytes_each
    sample = milliseconds(times[bench.ours.name])
    rows = [
        Row(
            "append 100 bytes to 900 KB",
            "ms",
            sample,
            bench.theirs.label,
            milliseconds(times[bench.theirs.name]),
            Target("at most 1/10", at_most=0.1),
        ),
        Row(
            "append 100 bytes to 900 KB",
            "ms",
            sample,
            "our append to 1 KB",
            milliseconds(small),
            Target("at most 1.5", at_most=1.5),
        ),
    ]
    if written[bench.ours.name]:
        ours_written, theirs_written = (
            Sample(tuple(written[side.name])) for side in (bench.ours, bench.theirs)
        )
        rows.append(
            Row(
                "written to disk per 100-byte append to 900 KB (write_bytes)",
                "bytes",
                ours_written,
                bench.theirs.label,
                theirs_written,
            )
        )
    return rows


def _round(client: Client, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds of `count` loads and `count` appends on a new small document."""
    handle = str(client.must("state_save", mint(SMALL_BYTES))["handle"])
    loads = [client.call("state_load", {"handle": handle}).seconds for _ in range(count)]
    return loads, _append(client, handle, count)


def _big_round(
    store: Store, clients: dict[str, Client], handles: dict[str, str], count: int
) -> tuple[list[float], list[float]]:
    """Return the seconds of each append, and the bytes that one append of this round caused on average."""
    name = store.server.name
    before = _written(store)
    seconds = _append(clients[name], handles[name], count)
    after = _written(store)
    return seconds, [] if before is None or after is None else [(after - before) / count]


def _append(client: Client, handle: str, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        reply = client.call("state_patch", append(handle))
        assert not reply.is_refused, reply.message
        seconds.append(reply.seconds)
    return seconds


def _written(store: Store) -> int | None:
    """Return what the processes that hold the database have written so far."""
    counts = [written_bytes(pid) for pid in store.pids()]
    return None if None in counts else sum(count or 0 for count in counts)
