"""What tools/list costs every prompt: its size."""

from __future__ import annotations

import json

from bench import Bench
from rows import Row, Sample, Target

LIMIT_BYTES = 8 * 1024


def measure_tool_list(bench: Bench) -> list[Row]:
    """Bytes of the result of tools/list as compact JSON."""
    sizes = []
    for server in (bench.ours, bench.theirs):
        with bench.store(server) as store:
            result = store.client().request("tools/list", {}).message["result"]
        sizes.append(len(json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()))
    ours, theirs = (Sample((float(size),)) for size in sizes)
    return [
        Row(
            "size of tools/list",
            "bytes",
            ours,
            bench.theirs.label,
            theirs,
            Target("at most 8 KB", at_most=LIMIT_BYTES, statistic="ours"),
        )
    ]
