"""For each step with failpoints: what lets a daemon reach them, and what is found after it died there."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import apsw
import trio

from mcpstated.connection import open_client
from mcpstated.daemon.backends import schema
from mcpstated.daemon.failpoints import VARIABLE
from mcpstated.protocol.errors import McpStateError
from mcpstated.protocol.paths import Paths
from support.aftermath import Aftermath, aftermath_of
from support.forked_daemons import ForkedDaemon, forked_daemon
from support.mcp_client import mcp_client, starting_environment
from support.shim_process import shim_environment
from support.workload import Workload

EXTRA = "extra"
"""The kind of handles that are no part of what is looked at afterwards."""
PATIENCE_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Stage:
    """What a scene may act on."""

    data_dir: Path
    environ: dict[str, str]
    daemon: ForkedDaemon
    workload: Workload


@dataclass(frozen=True, slots=True)
class Scene:
    """What goes on around a daemon until it dies."""

    time: int = 1
    """Which time the daemon dies there."""
    programs: int = 0
    config: str = ""
    prepare: Callable[[Path], None] | None = None
    """Puts into the directory what the daemon is to find."""
    act: Callable[[Stage], Awaitable[None]] | None = None
    """Goes on beside the writers until the daemon is dead."""


async def _repeat_without_effect(stage: Stage) -> None:
    """Call under request keys what changes nothing: its answer is all that is stored."""
    async with mcp_client(stage.data_dir, environ=stage.environ) as client:
        handle = (await client.tool("state_save", kind=EXTRA, state={"a": 1}))["handle"]
        operation = {"op": "set_key", "path": "", "key": "a", "value": 1}
        for number in range(1000):
            await client.tool("state_patch", handle=handle, ops=[operation], request_key=f"k{number}")


async def _empty_the_trash(stage: Stage) -> None:
    async with open_client(
        Paths(str(stage.data_dir)), role="library", environ=stage.environ, start=True
    ) as client:
        while True:
            handle = (await client.mint(EXTRA, {})).info.handle
            await client.delete(handle)
            with contextlib.suppress(McpStateError):  # it is not repeated: who asked is told so
                await client.empty_trash(handle)


async def _leave_something_to_sweep(stage: Stage) -> None:
    """Make handles that expire or go to a trash that is too small; read, which settles calls only."""
    async with mcp_client(stage.data_dir, environ=stage.environ) as client:
        while True:
            await client.tool("state_save", kind=EXTRA, state={}, ttl_days=1e-6)
            for _ in range(2):
                handle = (await client.tool("state_save", kind=EXTRA, state={}))["handle"]
                await client.tool("state_delete", handle=handle)
            for _ in range(20):
                await client.tool("state_list", kind=EXTRA, limit=1)
                await trio.sleep(0.05)


async def _stop_orderly(stage: Stage) -> None:
    await stage.workload.everybody_answered()
    os.kill(stage.daemon.pid, signal.SIGTERM)


def lay_out_version_1(data_dir: Path) -> None:
    """Make the store that the first version of the schema had."""
    db = apsw.Connection(Paths(str(data_dir)).database)
    with db:
        db.pragma("application_id", schema.APPLICATION_ID)
        schema.MIGRATIONS[0](db)
        db.pragma("user_version", 1)
    db.close()


_WRITING = Scene(time=4)
_OPENING = Scene()
_SWEEPING = Scene(
    config="[limits]\nhistory_changes = 5\ntrash_handles = 1\nwal_bytes = 1\n", act=_leave_something_to_sweep
)

SCENES: dict[str, Scene] = {
    "append": _WRITING,
    "write": _WRITING,
    "commit": _WRITING,
    "relay": Scene(time=12),  # a daemon that warms up sends lines of its own through here first
    "relay.before_settled": Scene(time=2),
    "relay.after_settled": Scene(time=2),
    "session": Scene(time=3, programs=2),
    "note_request": Scene(time=3, act=_repeat_without_effect),
    "empty_trash": Scene(time=3, act=_empty_the_trash),
    "note_time": _SWEEPING,
    "expire": _SWEEPING,
    "trim_trash": _SWEEPING,
    "purge": _SWEEPING,
    "forget_settled": _SWEEPING,
    "forget_old": _SWEEPING,
    "fold": _SWEEPING,
    "tidy": _SWEEPING,
    "migration": Scene(prepare=lay_out_version_1),
    "create": _OPENING,
    "open": _OPENING,
    "close": Scene(act=_stop_orderly),
}
"""By step, which is the first part of a failpoint's name, or by the whole name where it needs another one."""

ELSEWHERE: dict[str, str] = {
    "backup": "a process of its own makes backups: tests/maintenance/test_backup.py",
    "restore": "no daemon runs while a store is restored: tests/maintenance/test_restore.py",
    "compaction": "a process of its own runs the sweeper alone: tests/engine/test_compaction.py",
    "overwrite": "only a disk that fails in a commit leads there: tests/engine/test_disk_faults.py",
}
"""Steps that no healthy daemon takes, and which tests take them."""


def step_of(failpoint: str) -> str:
    """Return the first part of a name."""
    return failpoint.partition(".")[0]


async def die_at(
    failpoint: str, data_dir: Path, *, writers: int = 2, shims_start_it: bool, time: int | None = None
) -> Aftermath:
    """Let a daemon die at a failpoint under writers, let them go on with the next, and look at everything.

    Args:
        shims_start_it: The shims start the next daemon, as clients do; else it is a fork, which is faster.
        time: Which time it dies there; the scene's own if None.
    """
    scene = SCENES.get(failpoint) or SCENES[step_of(failpoint)]
    if scene.prepare is not None:
        scene.prepare(data_dir)
    (data_dir / "config.toml").write_text(scene.config)
    environ = starting_environment(data_dir) if shims_start_it else shim_environment(data_dir)
    workload = Workload(data_dir, writers=writers, programs=scene.programs, environ=environ)
    armed = {VARIABLE: f"{failpoint}=kill@{time or scene.time}"}
    with contextlib.ExitStack() as daemons, trio.fail_after(PATIENCE_SECONDS):
        first = daemons.enter_context(forked_daemon(data_dir, **armed))
        await first.serves()  # or is dead: nobody else may have started one before
        async with trio.open_nursery() as nursery:
            nursery.start_soon(workload.run)
            async with trio.open_nursery() as acting:
                if scene.act is not None:
                    acting.start_soon(scene.act, Stage(data_dir, environ, first, workload))
                code = await first.exit_code()
                acting.cancel_scope.cancel()
            assert code == -signal.SIGKILL, f"the daemon ended with {code}"
            if not shims_start_it:
                daemons.enter_context(forked_daemon(data_dir))
            await workload.everybody_answered()
            workload.stop()
        return await aftermath_of(workload)
