"""A daemon inside the test's own process: everything but the process is real."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from mcpstated.daemon.lock import FileLock
from mcpstated.daemon.main import serve
from mcpstated.daemon.ready import Ready
from mcpstated.protocol.settings import DaemonSettings, settings_from


def settings_in(directory: Path, config: str | None = None, **flags: float) -> DaemonSettings:
    """Return settings for a directory, as the command line would make them."""
    return settings_from(dict(os.environ), config, {"data_dir": str(directory), **flags})


class RunningDaemon:
    """What a test may do with the daemon that it runs."""

    def __init__(self, settings: DaemonSettings, lock: FileLock, start_lock: FileLock) -> None:
        self.settings = settings
        self.lock = lock
        self.start_lock = start_lock
        self.exit_code: int | None = None
        self.ended = trio.Event()

    @property
    def socket(self) -> str:
        return self.settings.paths.socket

    async def _run(self, ready: Ready) -> None:
        self.exit_code = await serve(self.settings, self.lock, self.start_lock, ready)
        self.ended.set()


@asynccontextmanager
async def daemon_in(
    directory: Path, config: str | None = None, **flags: float
) -> AsyncIterator[RunningDaemon]:
    """Run a daemon in `directory` until the block is left, which is an orderly stop by cancellation."""
    settings = settings_in(directory, config, **flags)
    with FileLock(settings.paths.lock) as lock, FileLock(settings.paths.start_lock) as start_lock:
        assert lock.try_acquire()
        read_end, write_end = os.pipe()
        daemon = RunningDaemon(settings, lock, start_lock)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(daemon._run, Ready(write_end))
                with trio.fail_after(30):
                    await trio.lowlevel.wait_readable(read_end)
                assert os.read(read_end, 1000) == b"ready\n"
                yield daemon
                nursery.cancel_scope.cancel()
        finally:
            os.close(read_end)
