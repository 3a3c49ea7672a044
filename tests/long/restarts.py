"""Restart the daemon again and again under load, and count what that costs the clients.

    python tests/long/restarts.py --rounds 50 --shims 16 --programs 2

Ends with 1 if a call failed, or if anything was lost, doubled or numbered with a gap.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.load import load_on
from support.mcp_client import daemon_pid, starting_environment
from support.reaper import kill_daemons_below

ROUND_SECONDS = 60.0
MCPSTATED = [sys.executable, "-m", "mcpstated.cli"]


async def run(data_dir: Path, *, rounds: int, shims: int, programs: int) -> int:
    """Restart under load, print what happened, and return the exit code."""
    pids, slowest_restart_seconds = set(), 0.0
    environ = starting_environment(data_dir)
    async with load_on(data_dir, shims=shims, programs=programs, environ=environ) as load:
        for number in range(1, rounds + 1):
            before = load.calls
            with trio.fail_after(ROUND_SECONDS):
                began = trio.current_time()
                await trio.run_process([*MCPSTATED, "restart"], env=environ, capture_stdout=True)
                slowest_restart_seconds = max(slowest_restart_seconds, trio.current_time() - began)
                pids.add(daemon_pid(data_dir))
                await load.everybody_has_called(1)
            print(f"round {number}: {load.calls - before} calls, {len(load.failed)} failed", flush=True)
    print(
        f"{rounds} restarts, {len(pids)} daemons, {load.calls:,} calls, {len(load.failed)} failed; "
        f"slowest call {load.slowest_seconds:.2f} s, slowest restart {slowest_restart_seconds:.2f} s"
    )
    for sentence in load.wrong[:20]:
        print(sentence)
    return 1 if load.wrong or len(pids) != rounds else 0


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="how many restarts")
    parser.add_argument("--shims", type=int, default=16, help="clients over stdio")
    parser.add_argument("--programs", type=int, default=2, help="clients over the library's connection")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="state-", dir="/tmp") as directory:
        try:
            return trio.run(
                lambda: run(
                    Path(directory), rounds=options.rounds, shims=options.shims, programs=options.programs
                )
            )
        finally:
            kill_daemons_below(Path(directory))


if __name__ == "__main__":
    sys.exit(main())
