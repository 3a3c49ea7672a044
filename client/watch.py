"""The changes of the store as a program follows them: one buffer between the connection and the watcher.

`connection` puts changes in as they arrive and never waits; whoever watches takes them out.
"""

from __future__ import annotations

import trio

from mcpstated.answers import Change

WATCH_BUFFER = 1024
"""Changes held for a watcher that is busy; one more cuts it off."""


class WatchLagged(Exception):
    """The watcher fell too far behind and missed changes; read the state anew and watch again."""


class Watch:
    """The changes of the store from now on, oldest first: `async for change in watch`.

    Raises:
        WatchLagged: More changes came than were taken; some are lost.
        DaemonUnavailable: The daemon has gone.
    """

    def __init__(self) -> None:
        self._put, self._take = trio.open_memory_channel[Change](WATCH_BUFFER)
        self._error: Exception | None = None

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Change:
        try:
            return await self._take.receive()
        except trio.EndOfChannel:
            assert self._error is not None  # only `end` ends the channel
            raise self._error from None

    def add_nowait(self, change: Change) -> None:
        """Hand on one change; a watcher that has no room for it is cut off instead of waited for."""
        try:
            self._put.send_nowait(change)
        except trio.WouldBlock:
            self.end(WatchLagged("more changes came than the watcher took"))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the watch has ended; what was under way is dropped

    def end(self, error: Exception) -> None:
        """Let the watcher have what came so far, and then this error; only the first one counts."""
        if self._error is None:
            self._error = error
        self._put.close()

    def close(self) -> None:
        """Drop everything; nobody watches any more."""
        self._put.close()
        self._take.close()
