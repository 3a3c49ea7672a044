"""Why and how a daemon ends: one request, one reason, and a second one that hurries.

Whoever wants the daemon to leave (a signal, the `stop` operation, the idle watch, the file watch)
calls `Stop.request`; only `main` acts on it.
"""

from __future__ import annotations

import signal

import trio

from mcpstated.protocol.messages import STOPPING

TEXTS = {
    "stopping": "The daemon was asked to stop.",
    "upgrading": "The daemon makes way for another one.",
}


class Stop:
    """A stop that may be requested once, and hurried by a second request."""

    def __init__(self) -> None:
        self._requested = trio.Event()
        self._hurried = trio.Event()
        self.reason = STOPPING
        """The reason that peers are told, a word of `messages.GOODBYE_REASONS`."""
        self.cause = ""
        """What led to it, for the log."""
        self.failure: str | None = None
        """Set if the daemon must leave because something is wrong; its exit code is then 1."""

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    def request(self, reason: str, *, cause: str, failure: str | None = None) -> None:
        """Ask the daemon to leave; a second call skips the grace period."""
        if self._requested.is_set():
            self._hurried.set()
            return
        self.reason, self.cause, self.failure = reason, cause, failure
        self._requested.set()

    async def requested(self) -> None:
        await self._requested.wait()

    async def hurried(self) -> None:
        await self._hurried.wait()


async def watch_signals(stop: Stop, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Turn SIGTERM, SIGINT and SIGHUP into a stop request, for ever."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            stop.request(STOPPING, cause=signal.Signals(number).name)
