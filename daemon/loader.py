"""Brings handles into memory: one read for each, however many callers wait for it.

The reads run in tasks of their own, so a caller that is cancelled does not take the others' read along.
A large document is parsed and replayed in a worker thread, so that nobody else waits for that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from mcpstated.daemon import changes
from mcpstated.daemon.cache import Cache, Entry
from mcpstated.daemon.repeats import RepeatLog
from mcpstated.protocol.errors import BackendError, McpStateError

if TYPE_CHECKING:
    from mcpstated.daemon.backends.interface import Backend, Key, StoredHandle
    from mcpstated.daemon.changes import State

INLINE_MAX_CHARS = 64 * 1024
"""What is parsed faster than a hop to a thread takes."""


class _Loading:
    """One read on its way."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.is_found = False
        self.error: McpStateError | None = BackendError("The store closed during this read. Try again.")


class Loader:
    """Reads handles into the cache. Owned by the event loop's thread."""

    def __init__(self, backend: Backend, cache: Cache) -> None:
        self._backend = backend
        self._cache = cache
        self._loading: dict[Key, _Loading] = {}
        self._nursery: trio.Nursery | None = None
        self._log = RepeatLog(logging.getLogger("mcpstated.engine"))

    def start(self, nursery: trio.Nursery) -> None:
        """Run the reads in this nursery from now on."""
        self._nursery = nursery

    def stop(self) -> None:
        """Begin no more reads; those that run are cancelled with the nursery."""
        self._nursery = None

    async def load(self, key: Key) -> bool:
        """Bring the handle into the cache and return True, or return False if there is none.

        Raises:
            BackendError: The read failed, or the store is closing.
        """
        loading = self._loading.get(key)
        if loading is None:
            if self._nursery is None:
                raise BackendError("The store is closed or closing. Try again in a moment.")
            loading = self._loading[key] = _Loading()
            self._nursery.start_soon(self._run, key, loading)
        await loading.ended.wait()
        if loading.error is not None:
            raise again(loading.error)
        return loading.is_found

    async def rebuild(self, how: Callable[[StoredHandle], State], key: Key, stored: StoredHandle) -> State:
        """Return a state from what is stored.

        Raises:
            BackendError: What is stored does not fit together.
        """
        size = sum(len(change.body) for change in stored.changes)
        size += len(stored.checkpoint.document) if stored.checkpoint is not None else 0
        try:
            if size <= INLINE_MAX_CHARS:
                return how(stored)
            return await trio.to_thread.run_sync(how, stored)
        except Exception as error:  # whatever it is, it must stay this handle's trouble
            self._log.error("stored handle was unreadable", error, has_text=False, handle=key.handle)
            raise BackendError(
                f"What is stored for {key.handle} is damaged and cannot be read. Other handles are fine."
            ) from error

    async def _run(self, key: Key, loading: _Loading) -> None:
        try:
            stored = await self._backend.load(key)
            if stored is not None:
                state = await self.rebuild(changes.rebuild, key, stored)
                head = stored.head
                self._cache.add(
                    Entry(key, state, oldest_version=head.oldest_version, history_bytes=head.history_bytes)
                )
                loading.is_found = True
            loading.error = None
        except McpStateError as error:
            loading.error = error
        finally:
            del self._loading[key]
            loading.ended.set()


def again(error: McpStateError) -> McpStateError:
    """Return an equal error, so that each of several callers raises one of its own."""
    return type(error)(error.message, **error.details)
