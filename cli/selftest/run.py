"""One self-test, from an empty private store to a verdict.

    clients nursery                     shims, one for each client
    |- kills nursery                    cancelled when the last lane has ended
    |  |- kill_daemons, kill_clients
    |  '- lanes nursery                 two lanes a client; they end when their time is over
    '- auditor                          judges what is retired, until nothing is left

Then the list is looked at, and the store is examined as `mcpstated verify` does it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import trio

from mcpstated.cli.selftest.auditor import Auditor
from mcpstated.cli.selftest.client import ShimClient, ShimEnded
from mcpstated.cli.selftest.killer import kill_clients, kill_daemons
from mcpstated.cli.selftest.problems import Problem
from mcpstated.cli.selftest.shared import SharedHandle
from mcpstated.cli.selftest.tally import Tally
from mcpstated.cli.selftest.workload import Workload
from mcpstated.cli.stage import Stage, private_stage
from mcpstated.connection import open_client
from mcpstated.protocol.errors import McpStateError

LANES = 2
"""Calls that each client has under way at a time."""
_LOOK_SECONDS = 0.1
_START_SECONDS = 60.0
_VERIFY_SECONDS = 300.0


@dataclass(slots=True)
class SelfTest:
    """What to do, and what came of it."""

    minutes: float
    clients: int
    tally: Tally = field(default_factory=Tally)
    seconds: float = 0.0
    """How long the clients worked."""
    phase: str = "starting"
    directory: str = ""
    is_interrupted: bool = False
    is_finished: bool = False

    def interrupt(self) -> None:
        """End before the time is over, in order."""
        self.is_interrupted = True

    async def run(self, show: Callable[[SelfTest], None]) -> None:
        """Run it; `show` is called some times a second."""
        async with private_stage("selftest", is_kept=lambda: bool(self.tally.problems)) as stage:
            self.directory = stage.paths.data_dir
            async with trio.open_nursery() as nursery:

                async def keep_showing() -> None:
                    while True:
                        show(self)
                        await trio.sleep(_LOOK_SECONDS)

                nursery.start_soon(keep_showing)
                try:
                    await self._torture(stage)
                except* (ShimEnded, McpStateError) as group:
                    self.tally.add_problems([Problem("broken", "", str(error)) for error in _leaves(group)])
                self.phase = "examining the store"
                self.tally.add_problems(await _store_problems(stage))
                self.is_finished = True
                nursery.cancel_scope.cancel()

    async def _torture(self, stage: Stage) -> None:
        random = Random()  # noqa: S311
        retire, retired = trio.open_memory_channel[SharedHandle](2)
        workload = Workload(self.tally, retire, random)
        clients = [ShimClient(f"client-{number}", stage) for number in range(1, self.clients + 1)]
        async with (
            open_client(
                stage.paths,
                role="cli",
                environ=stage.environ,
                start=True,
                timeout_seconds=_START_SECONDS,
            ) as program,
            trio.open_nursery() as nursery,
        ):
            auditor = Auditor(program, self.tally, Path(stage.paths.data_dir) / "history.jsonl")
            async with trio.open_nursery() as starting:
                for client in clients:
                    starting.start_soon(nursery.start, client.run)
            async with trio.open_nursery() as judging:
                judging.start_soon(auditor.run, retired)
                self.phase = "running"
                async with trio.open_nursery() as kills:
                    kills.start_soon(kill_daemons, stage, self.tally, random)
                    kills.start_soon(kill_clients, clients, self.tally, random)
                    async with trio.open_nursery() as lanes:
                        for client in clients * LANES:
                            lanes.start_soon(workload.lane, client)
                        await self._until_over()
                        workload.end()
                    kills.cancel_scope.cancel()
                self.phase = "reading everything back"
                async with retire:
                    await workload.hand_over()
            self.tally.add_problems(await auditor.leftovers(workload.mints))
            nursery.cancel_scope.cancel()

    async def _until_over(self) -> None:
        """Wait until the time is over, somebody interrupts, or something is wrong."""
        began = time.monotonic()
        while not self.is_interrupted and not self.tally.problems:
            self.seconds = time.monotonic() - began
            if self.seconds >= self.minutes * 60:
                return
            await trio.sleep(_LOOK_SECONDS)


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _store_problems(stage: Stage) -> list[Problem]:
    """Have the store examined by a process of its own, as a person would."""
    command = [sys.executable, "-m", "mcpstated.cli", "verify", "--json", "--data-dir", stage.paths.data_dir]
    done = None
    with trio.move_on_after(_VERIFY_SECONDS):
        done = await trio.run_process(
            command, capture_stdout=True, env=stage.environ, check=False, stdin=subprocess.DEVNULL
        )
    if done is None:
        return [Problem("store", "", f"it could not be examined within {_VERIFY_SECONDS:g} s")]
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        return [Problem("store", "", f"`mcpstated verify` failed with exit code {done.returncode}")]
    found = [Problem("store", item["where"], item["what"]) for item in verdict["data"].get("problems", ())]
    if not found and verdict["exit_code"] != 0:
        found = [Problem("store", "", error["message"]) for error in verdict["errors"]]
    return found
