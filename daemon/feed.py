"""The feed: what changed, told to whoever listens, after it is durable.

The engine publishes, sessions subscribe. Publishing never waits: a subscriber has a bounded buffer,
and one that does not keep up is cut off with `FeedLagged` and has to read the store afresh (P7).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from mcpstated.protocol.store import Action, HandleId, Revision, Space, Version

DEFAULT_BUFFER = 1_024


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """One change of one handle."""

    revision: Revision
    space: Space
    user: str
    handle: HandleId
    kind: str
    version: Version
    action: Action
    writer: str
    at: float
    """Seconds since the epoch on the store's clock."""


class FeedLagged(Exception):
    """The subscriber fell behind and has missed changes."""


class Subscription:
    """An async iterator over the changes since it was made; one task reads it."""

    def __init__(self, user: str | None, buffer: int) -> None:
        self._user = user
        self._send, self._receive = trio.open_memory_channel[FeedEvent](buffer)
        self._is_lagging = False

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> FeedEvent:
        """Return the next change, in the order of revisions.

        Raises:
            FeedLagged: Changes were lost; the subscription is over. What was buffered comes first.
        """
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            if self._is_lagging:
                raise FeedLagged from None
            raise StopAsyncIteration from None

    def _offer(self, event: FeedEvent) -> bool:
        """Buffer the event if it is wanted; False if the subscriber is cut off."""
        if self._user is not None and event.user != self._user:
            return True
        try:
            self._send.send_nowait(event)
        except trio.WouldBlock:
            self._is_lagging = True
            self._send.close()
            return False
        return True

    def _close(self) -> None:
        self._send.close()
        self._receive.close()


class Feed:
    """Hands events to its subscribers. Owned by the event loop's thread."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()

    def publish(self, events: Sequence[FeedEvent]) -> None:
        """Offer the events to every subscriber; returns at once, whoever lags."""
        for subscription in tuple(self._subscriptions):
            for event in events:
                if not subscription._offer(event):
                    self._subscriptions.discard(subscription)
                    break

    @contextmanager
    def subscribe(self, *, user: str | None, buffer: int = DEFAULT_BUFFER) -> Iterator[Subscription]:
        """Listen until the block ends.

        Args:
            user: Only this user's changes; None for everyone's.
            buffer: Events that may wait to be read before the subscriber counts as lagging.
        """
        subscription = Subscription(user, buffer)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            subscription._close()
