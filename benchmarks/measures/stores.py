"""Big stores: the first page of a list, and a load among many handles."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

from bench import Bench, Store, say
from clients import Client
from crowd import drive
from documents import document, mint
from rows import Row, Target, milliseconds
from servers import Mcpstate

LIST_BYTES = 2_000
LOAD_BYTES = 1_000
FEW = 100
_FILLERS = 4
_WINDOW = 16
_MINT_PROGRAM = """\
import json, sys
from mcpstate import HandleStore
store = HandleStore.from_url(sys.argv[1])
document = json.load(sys.stdin)
for _ in range(int(sys.argv[2])):
    store.mint("bench", document, user="local", writer="benchmark")
"""
"""mcpstate is filled through its own library: through its tools it would take minutes."""


def measure_list(bench: Bench) -> list[Row]:
    """The first page of a list in a store with many handles, and in one with few."""
    counts = bench.counts
    with (
        bench.store(bench.ours) as ours,
        bench.store(bench.ours) as few,
        bench.store(bench.theirs) as theirs,
    ):
        say(f"  filling two stores with {counts.list_handles} handles of {LIST_BYTES} bytes")
        fill(ours, counts.list_handles, LIST_BYTES)
        fill(few, FEW, LIST_BYTES)
        _fill_mcpstate(bench.theirs, theirs.directory, counts.list_handles, LIST_BYTES)
        stores = (ours, few, theirs)
        clients = [store.client() for store in stores]
        times: list[list[float]] = [[], [], []]
        for turn in range(counts.list_rounds + 1):
            for index, client in enumerate(clients):
                for _ in range(1 if stores[index] is theirs else 10):
                    reply = client.call("state_list", {})
                    assert reply.payload.get("handles"), reply.message
                    if turn:
                        times[index].append(reply.seconds)
    figure = f"first page of a list, {counts.list_handles:,} handles of 2 KB"
    sample = milliseconds(times[0])
    return [
        Row(
            figure,
            "ms",
            sample,
            bench.theirs.label,
            milliseconds(times[2]),
            Target("at most 1/10", at_most=0.1),
        ),
        Row(
            figure, "ms", sample, f"ours with {FEW}", milliseconds(times[1]), Target("at most 2", at_most=2.0)
        ),
    ]


def measure_many_handles(bench: Bench) -> list[Row]:
    """Loads in a big store and in a small one, in turns: of as many handles in use, and of any handle."""
    counts = bench.counts
    room = {"max_handles_per_user": counts.many_handles + 1}
    with bench.store(bench.ours, **room) as many, bench.store(bench.ours) as few:
        say(f"  filling a store with {counts.many_handles} handles of {LOAD_BYTES} bytes")
        in_many, in_few = fill(many, counts.many_handles, LOAD_BYTES), fill(few, FEW, LOAD_BYTES)
        chance = random.Random(1)  # noqa: S311  # the same handles in every run
        in_use = chance.sample(in_many, FEW)
        clients = many.client(), few.client()
        turns = ((clients[0], in_use), (clients[1], in_few), (clients[0], in_many))
        times: list[list[float]] = [[], [], []]
        for turn in range(counts.rounds + 5):
            for seconds, (client, handles) in zip(times, turns, strict=True):
                batch = [
                    _load(client, handle) for handle in chance.choices(handles, k=counts.calls_per_round)
                ]
                if turn >= 5:  # by then what is in use is in memory
                    seconds.extend(batch)
    big, small, anywhere = (milliseconds(seconds) for seconds in times)
    figure = f"load with {counts.many_handles:,} handles in the store"
    other = f"ours with {FEW}"
    return [
        Row(f"{figure}, {FEW} of them in use", "ms", big, other, small, Target("at most 1.3", at_most=1.3)),
        Row(f"{figure}, any of them, most not in memory", "ms", anywhere, other, small),
    ]


def _load(client: Client, handle: str) -> float:
    reply = client.call("state_load", {"handle": handle})
    assert not reply.is_refused, reply.message
    return reply.seconds


def fill(store: Store, count: int, size_bytes: int) -> list[str]:
    """Mint that many handles through several clients at once and return them."""
    clients = [store.client() for _ in range(_FILLERS)]
    share, rest = divmod(count, _FILLERS)
    call = {"name": "state_save", "arguments": mint(size_bytes)}
    lines = [
        [client.line("tools/call", call) for _ in range(share + (index < rest))]
        for index, client in enumerate(clients)
    ]
    replies = drive(clients, lines, window=_WINDOW).all_replies
    for client in clients:
        store.close(client)
    refused = [reply.message for reply in replies if reply.is_refused]
    assert not refused, refused[0]
    return [str(reply.payload["handle"]) for reply in replies]


def _fill_mcpstate(server: Mcpstate, directory: Path, count: int, size_bytes: int) -> None:
    subprocess.run(
        [server.python, "-c", _MINT_PROGRAM, server.backend(directory), str(count)],
        input=json.dumps(document(size_bytes)),
        env=server.environment(directory),
        text=True,
        check=True,
    )
