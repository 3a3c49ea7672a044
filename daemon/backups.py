"""The backups that the daemon has made by itself: when one is due, and the child process that makes it.

The child is of low priority and works on the files; the daemon only waits for it. What is due is read from
the names of the backups that are there, so it holds across restarts and for daemons that live for minutes.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from mcpstated.daemon.logs import log_event
from mcpstated.daemon.maintenance.rotation import directory_of, is_due, kept_backups, newest_of
from mcpstated.protocol.errors import McpStateError

if TYPE_CHECKING:
    from mcpstated.protocol.limits import Limits

log = logging.getLogger("mcpstated.backups")

FIRST_LOOK_SECONDS = 120.0
"""A daemon that lives shorter makes none: clients start and throw away processes all day."""
LOOK_SECONDS = 900.0
MAX_SECONDS = 3600.0
"""How long one backup may take."""
_MAX_WORDS_CHARS = 300
_JOB = "mcpstated.daemon.maintenance.daily"


@dataclass(slots=True)
class BackupState:
    """What `status` tells of the backups."""

    directory: str
    newest_at: float | None = None
    """When the newest was begun, in seconds since the Unix epoch."""
    files: int = 0
    size_bytes: int = 0
    error: str | None = None
    """Why the last attempt failed; None if it did not."""


class Backups:
    """Keeps one store backed up.

    Args:
        database: The store's file.
        limits: How often, and how many are kept.
        revision: Returns the store's newest revision.
        now_unix: The wall clock in seconds.
        command: The interpreter and its flags, for the child.
    """

    def __init__(
        self,
        database: str,
        *,
        limits: Limits,
        revision: Callable[[], Awaitable[int]],
        now_unix: Callable[[], float],
        command: list[str],
    ) -> None:
        self._database = Path(database)
        self._directory = directory_of(self._database)
        self._limits = limits
        self._revision = revision
        self._now_unix = now_unix
        self._command = command
        self._error: str | None = None

    async def run(self) -> None:
        """Look now and then, for ever. A backup that fails is logged and tried again at the next look."""
        if not self._limits.backup_hours:
            return
        await trio.sleep(FIRST_LOOK_SECONDS)
        while True:
            await self.look()
            await trio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Make a backup if one is due."""
        try:
            backups = await trio.to_thread.run_sync(kept_backups, self._directory)
            hours, now = self._limits.backup_hours, self._now_unix()
            if is_due(newest_of(backups, now=now), now=now, revision=await self._revision(), hours=hours):
                await self._make()
        except (OSError, McpStateError) as error:
            self._failed(str(error))

    def state(self) -> BackupState:
        """Return what there is. Raises: OSError."""
        backups = kept_backups(self._directory)
        return BackupState(
            directory=str(self._directory),
            newest_at=newest.at if (newest := newest_of(backups, now=self._now_unix())) else None,
            files=len(backups),
            size_bytes=sum(kept.size_bytes for kept in backups),
            error=self._error,
        )

    async def _make(self) -> None:
        arguments = [str(self._database), str(self._directory)]
        bounds = [str(self._limits.backup_files), str(self._limits.backup_bytes)]
        with trio.move_on_after(MAX_SECONDS) as time:
            done = await trio.run_process(
                [*self._command, "-m", _JOB, *arguments, *bounds],
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                cwd="/",
                env=_environment(),
            )
        if time.cancelled_caught:
            self._failed(f"It took longer than {MAX_SECONDS:g} s.")
            return
        said = _answer(done.stdout)
        if done.returncode == 0 and "path" in said:
            self._error = None
            log_event(log, "info", "backup made", path=said["path"], size_bytes=said.get("size_bytes"))
        else:
            last_words = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:_MAX_WORDS_CHARS]
            ended = f"The process ended with {done.returncode}. {last_words}".rstrip()
            self._failed(str(said.get("error") or ended))

    def _failed(self, reason: str) -> None:
        self._error = reason
        log_event(log, "error", "backup failed", reason=reason)


def interpreter_command() -> list[str]:
    """Return how to start an interpreter that imports from where this one does, and from nowhere else."""
    flags = sys.flags
    given = {
        "-I": flags.isolated,
        "-E": flags.ignore_environment and not flags.isolated,
        "-P": flags.safe_path and not flags.isolated,
        "-s": flags.no_user_site and not flags.isolated,
    }
    return [sys.executable, *(flag for flag, is_given in given.items() if is_given)]


def _environment() -> dict[str, str]:
    """Return what the child needs of the environment: where modules are, and what a test has armed."""
    names = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "MCPSTATED_FAILPOINTS")
    return {name: os.environ[name] for name in names if name in os.environ}


def _answer(output: bytes) -> dict[str, object]:
    try:
        said = json.loads(output)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
