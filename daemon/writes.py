"""One write from the call to the receipt: evaluated against the tip, queued, durable, exactly once.

Everything between reading a tip and queueing what follows from it happens without a wait, so the
writes to one handle are in one order. An answer never rests on a state that can vanish: where an
evaluation ends in an error or in no change, the caller waits until the tip that it looked at is
durable, and evaluates again if it never will be. Above: the engine. Below: the committer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import trio

from mcpstated.daemon.backends.interface import Applied, Key, Repeated
from mcpstated.daemon.committer import Pending
from mcpstated.daemon.conflicts import MAX_CHANGES, stale_write
from mcpstated.daemon.evaluation import Evaluated, Evaluation, Stale
from mcpstated.daemon.failpoints import failpoint
from mcpstated.daemon.keyed_answers import KeyedAnswers
from mcpstated.daemon.ledger import receipt_from
from mcpstated.daemon.loader import again
from mcpstated.daemon.logs import log_event
from mcpstated.protocol.errors import BackendError, HandleNotFound, McpStateError
from mcpstated.protocol.store import Caller, Receipt, Revision, Touched

if TYPE_CHECKING:
    from mcpstated.daemon.backends.interface import Backend, StoredChange
    from mcpstated.daemon.cache import Cache, Entry
    from mcpstated.daemon.changes import State
    from mcpstated.daemon.clock import StoreClock
    from mcpstated.daemon.committer import Committer
    from mcpstated.daemon.ledger import Ledger
    from mcpstated.daemon.loader import Loader

log = logging.getLogger("mcpstated.engine")

MAX_ATTEMPTS = 16
"""How often one write is evaluated again because its handle changed under it in the backend."""

Evaluate: TypeAlias = "Callable[[State, float], Evaluation]"
"""From the tip and the time to what becomes of it. Raises McpStateError."""
Attempt: TypeAlias = "tuple[Pending, tuple[Touched, ...]] | Receipt | None"
"""A queued write and what it touched, or the answer, or None if what it rested on has vanished."""


class Writer:
    """Carries out writes. Owned by the event loop's thread."""

    def __init__(
        self,
        backend: Backend,
        *,
        clock: StoreClock,
        cache: Cache,
        ledger: Ledger,
        loader: Loader,
        committer: Committer,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._cache = cache
        self._ledger = ledger
        self._loader = loader
        self._committer = committer
        self._keyed_answers = KeyedAnswers(backend, clock=clock)

    async def entry(self, key: Key) -> Entry:
        """Return the handle's entry, loaded if need be. No wait comes between finding and returning it.

        Raises:
            HandleNotFound: There is no such handle.
            BackendError: It could not be read.
        """
        while (entry := self._cache.get(key)) is None:
            if not await self._loader.load(key):
                raise not_found(key)
        return entry

    async def change(self, caller: Caller, key: Key, evaluate: Evaluate) -> Receipt:
        """Evaluate against the tip of an existing handle, append what comes out of it, and answer.

        Raises:
            McpStateError: What `evaluate` raises, HandleNotFound, or what the storage failed with.
        """

        async def attempt() -> Attempt:
            entry = await self.entry(key)
            tip, last = entry.tip, entry.last
            try:
                if tip is None:
                    raise not_found(key)
                evaluated = evaluate(tip, self._clock.now())
            except McpStateError as error:
                if not await _is_durable(last):
                    return None
                if isinstance(error, Stale) and tip is not None:
                    raise await self._stale_write(key, tip, error) from None
                raise
            if isinstance(evaluated, Evaluated):
                failpoint("write.before_submit")
                return self._committer.submit(entry, evaluated.step), evaluated.touched
            if not await _is_durable(last):
                return None
            durable = tip if last is None or last.state is None else last.state
            return Receipt(durable.info, is_changed=False, touched=evaluated.touched)

        return await self.write(caller, attempt)

    async def write(self, caller: Caller, attempt: Callable[[], Awaitable[Attempt]]) -> Receipt:
        """Attempt a write until it is durable, at most once for each token and each request key.

        Cancellation: a write that is queued goes on without its caller.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        claim = await self._ledger.claim(caller)
        pending: Pending | None = None
        try:
            if caller.token is not None and claim.must_recall:
                known = await self._backend.recall(caller.space, caller.user, caller.token)
                if known is not None:
                    return receipt_from(known)
            if caller.request is not None:
                answered = await self._keyed_answers.recall(caller, caller.request)
                if answered is not None:
                    return answered
            for _ in range(MAX_ATTEMPTS):
                attempted = await attempt()
                if isinstance(attempted, Receipt):
                    if caller.request is not None:
                        await self._keyed_answers.note(caller, caller.request, attempted)
                    return attempted
                if attempted is not None:
                    pending, touched = attempted
                    failpoint("write.after_submit")
                    await pending.wait()
                    if (receipt := _receipt(pending, touched)) is not None:
                        return receipt
        finally:
            if pending is None:
                claim.release()
            else:  # a cancelled caller's write goes on, and a second run must wait for it
                pending.when_settled(lambda _: claim.release())
        log_event(log, "error", "write gave up", attempts=MAX_ATTEMPTS)
        raise BackendError(
            "The handle kept changing in the storage under this write. Nothing was stored; try again."
        )

    async def _stale_write(self, key: Key, state: State, stale: Stale) -> McpStateError:
        expected = stale.expected_version
        since: Sequence[StoredChange] = ()
        if expected < state.info.version:
            since = await self._backend.changes(
                key, after=expected, upto=state.info.version, limit=MAX_CHANGES
            )
        return stale_write(state, expected, since)


def not_found(key: Key) -> HandleNotFound:
    """Return the error for a handle that this user does not have, whoever else may have it."""
    return HandleNotFound(
        f"There is no handle {key.handle}. List your handles to find the right one, "
        "or save without a handle to start a new one.",
        handle=key.handle,
    )


async def _is_durable(last: Pending | None) -> bool:
    """Return whether the tip that `last` made has become durable, once that is known."""
    if last is None:
        await trio.lowlevel.checkpoint()
        return True
    await last.wait()
    return isinstance(last.outcome, Applied)


def _receipt(pending: Pending, touched: tuple[Touched, ...]) -> Receipt | None:
    """Return the answer to a settled write; None if it met a conflict. Raises what the batch failed with."""
    outcome, change = pending.outcome, pending.step.change
    if pending.error is not None:
        raise again(pending.error)
    if isinstance(outcome, Repeated):
        return receipt_from(outcome)
    if not isinstance(outcome, Applied):
        return None
    if pending.state is not None:
        return Receipt(pending.state.info, is_changed=True, touched=touched)
    info = replace(change.info, revision=Revision(outcome.revision))
    return Receipt(info, is_changed=True, touched=touched, is_deleted=True, trash_until=change.trash_until)
