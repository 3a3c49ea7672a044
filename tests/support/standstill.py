"""Waiting for a process that stops itself."""

from __future__ import annotations

import trio

LOOK_SECONDS = 0.02


async def until_it_stands_still(pid: int) -> None:
    """Return when the process is stopped, as by SIGSTOP; fails if it has ended."""
    while True:
        done = await trio.run_process(["ps", "-o", "stat=", "-p", str(pid)], capture_stdout=True, check=False)
        state = done.stdout.decode().strip()
        assert state[:1] not in ("", "Z"), "the process has ended"
        if state.startswith("T"):
            return
        await trio.sleep(LOOK_SECONDS)
