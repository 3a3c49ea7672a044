"""Start many shims at once on an empty data directory, round after round, and count daemons and answers.

    python tests/long/starts.py --rounds 50 --shims 30

Ends with 1 if a round had more or fewer than one daemon, or a shim that got no answer.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mcpstated.protocol.paths import Paths
from support.mcp_client import mcp_client
from support.reaper import kill_daemons_below

ROUND_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Round:
    """What came of one round."""

    answers: int
    handles: int
    daemons: int
    """How many wrote into the log that they serve."""
    seconds: float


async def play(data_dir: Path, shims: int) -> Round:
    """Start shims at the same moment, let each save a state, and count."""
    handles: list[str] = []

    async def be_a_client(number: int) -> None:
        async with mcp_client(data_dir, name=f"client {number}") as client:
            saved = await client.tool("state_save", kind="start", state={"n": number})
            loaded = await client.tool("state_load", handle=saved["handle"])
            assert loaded["state"] == {"n": number}, loaded
            handles.append(saved["handle"])

    began = trio.current_time()
    with trio.move_on_after(ROUND_SECONDS):
        async with trio.open_nursery() as nursery:
            for number in range(shims):
                nursery.start_soon(be_a_client, number)
    log = Path(Paths(str(data_dir)).log)
    daemons = log.read_text().count("daemon started") if log.exists() else 0
    return Round(len(handles), len(set(handles)), daemons, trio.current_time() - began)


async def run(*, rounds: int, shims: int) -> int:
    """Play the rounds, print what happened, and return the exit code."""
    played: list[Round] = []
    for number in range(1, rounds + 1):
        data_dir = Path(tempfile.mkdtemp(prefix="state-", dir="/tmp"))
        try:
            found = await play(data_dir, shims)
        finally:
            kill_daemons_below(data_dir)
            shutil.rmtree(data_dir, ignore_errors=True)
        played.append(found)
        print(
            f"round {number}: {found.answers} answers, {found.handles} handles, {found.daemons} daemons, "
            f"{found.seconds:.1f} s",
            flush=True,
        )
    good = [found for found in played if (found.answers, found.handles, found.daemons) == (shims, shims, 1)]
    slowest = max(found.seconds for found in played)
    print(
        f"{len(good)} of {rounds} rounds had one daemon and {shims} answers, "
        f"{sum(found.answers for found in played):,} answers in all; the slowest took {slowest:.1f} s"
    )
    return 0 if len(good) == rounds else 1


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50, help="how many empty directories")
    parser.add_argument("--shims", type=int, default=30, help="how many start at once in each")
    options = parser.parse_args()
    return trio.run(lambda: run(rounds=options.rounds, shims=options.shims))


if __name__ == "__main__":
    sys.exit(main())
