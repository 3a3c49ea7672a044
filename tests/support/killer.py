"""Killing the daemon of a store again and again, at random moments, while a workload goes on."""

from __future__ import annotations

import os
import random
import re
import signal
from math import inf
from pathlib import Path

import trio

from mcpstated.protocol.paths import Paths
from support.workload import Workload

LOOK_SECONDS = 0.005
QUICK_SECONDS = 3.0
"""How soon after a kill the next daemon must be there to be killed early."""


class Killer:
    """Kills one daemon after the other.

    Most die up to 0.2 s after each writer was answered by it, the others while they start or right after.
    Of those never two in a row, nor one that took long to start: what is promised is an answer where a daemon
    can be had in ten seconds.
    """

    def __init__(self, workload: Workload, *, seed: int, early: float = 0.25) -> None:
        self._workload = workload
        self._random = random.Random(seed)
        self._early = early
        """The part that dies early."""
        self._was_early = True
        self._last_pid: int | None = None
        self._killed_at = -inf
        self.kills = 0
        self.early_kills = 0

    async def kill(self) -> None:
        """Kill the next daemon, once it is there."""
        pid = await self._next_daemon()
        is_quick = trio.current_time() - self._killed_at < QUICK_SECONDS
        self._was_early = is_quick and not self._was_early and self._random.random() < self._early
        if self._was_early:
            self.early_kills += 1
            await trio.sleep(self._random.uniform(0, 0.5))
        else:
            await self._workload.everybody_answered()
            await trio.sleep(self._random.uniform(0, 0.2))
        os.kill(pid, signal.SIGKILL)
        self._killed_at = trio.current_time()
        self._last_pid = pid
        self.kills += 1

    async def _next_daemon(self) -> int:
        while (pid := noted_pid(self._workload.data_dir)) in (None, self._last_pid):
            await trio.sleep(LOOK_SECONDS)
        assert pid is not None
        return pid


def noted_pid(data_dir: Path) -> int | None:
    """Return the process that took the directory last, which it says before it serves; None if nobody has."""
    try:
        found = re.match(r"pid=(\d+) ", Path(Paths(str(data_dir)).lock).read_text())
    except FileNotFoundError:
        return None
    return int(found[1]) if found else None
