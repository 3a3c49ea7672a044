"""What is left of the writes of many clients, beside server-memory: one JSON file without locks."""

from __future__ import annotations

from appends import append_together
from bench import Bench
from clients import Client
from crowd import drive
from rows import Row, Sample


def measure_lost_writes(bench: Bench) -> list[Row]:
    """Every client writes to one handle, or one entity, at the same time; every value is looked for after."""
    if bench.memory is None:
        return []
    clients, calls = bench.counts.crowd_clients, bench.counts.lost_calls
    with bench.store(bench.ours) as store:
        outcome = append_together(bench.ours, [store.client() for _ in range(clients)], calls=calls)
        landed = outcome.landed
    with bench.store(bench.memory) as store:
        kept, acknowledged = _observe_together([store.client() for _ in range(clients)], calls)
    sent = clients * calls
    return [
        Row(
            f"{clients} clients writing to one place: kept, of all writes",
            "%",
            Sample((100 * landed / sent,)),
            bench.memory.label,
            Sample((100 * kept / sent,)),
        ),
        Row(
            f"{clients} clients writing to one place: acknowledged, of all writes",
            "%",
            Sample((100 * (sent - outcome.refused) / sent,)),
            bench.memory.label,
            Sample((100 * acknowledged / sent,)),
        ),
    ]


def _observe_together(clients: list[Client], calls: int) -> tuple[int, int]:
    """Return how many observations are in the file at the end, and how many were acknowledged."""
    entity = {"name": "bench", "entityType": "benchmark", "observations": []}
    clients[0].must("create_entities", {"entities": [entity]})
    lines = [
        [_observation(client, f"{index}/{call}") for call in range(calls)]
        for index, client in enumerate(clients)
    ]
    run = drive(clients, lines)
    acknowledged = sum(not reply.is_refused for reply in run.all_replies)
    graph = clients[0].call("read_graph", {})
    entities = [] if graph.is_refused else graph.payload.get("entities", [])
    kept = {text for each in entities for text in each["observations"]}
    sent = {f"{index}/{call}" for index in range(len(clients)) for call in range(calls)}
    return len(kept & sent), acknowledged


def _observation(client: Client, text: str) -> bytes:
    arguments = {"observations": [{"entityName": "bench", "contents": [text]}]}
    return client.line("tools/call", {"name": "add_observations", "arguments": arguments})
