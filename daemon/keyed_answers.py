"""Request keys: a caller names a write, and repeating it under that name gives the first answer again.

The tokens of the ledger protect against a connection that breaks; this protects against a caller that
does not know whether it has called. An answer is kept in the transaction of its change; one that had no
effect is kept before it is given; an error is not kept, for nothing was done. Owned by the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpstated.daemon.backends.interface import Key
from mcpstated.daemon.ledger import KEPT_SECONDS, receipt_from, receipt_to_text
from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.wording import quote

if TYPE_CHECKING:
    from mcpstated.daemon.backends.interface import Backend
    from mcpstated.daemon.clock import StoreClock
    from mcpstated.protocol.store import Caller, Receipt, RequestKey


class KeyedAnswers:
    """The answers that are kept under request keys."""

    def __init__(self, backend: Backend, *, clock: StoreClock) -> None:
        self._backend = backend
        self._clock = clock

    async def recall(self, caller: Caller, request: RequestKey) -> Receipt | None:
        """Return the answer to the first call under this key, or None if this is the first.

        Raises:
            InvalidInput: The first call asked for something else.
            BackendError: The storage failed.
        """
        known = await self._backend.recall_request(
            caller.space, caller.user, request.key, after=self._clock.now() - KEPT_SECONDS
        )
        if known is None:
            return None
        if known.fingerprint != request.fingerprint:
            raise InvalidInput(
                f"The request_key {quote(request.key)} was used for a call with other arguments. Nothing was "
                "done. Take a new key for a new call; repeat a call with exactly the arguments that it had.",
                field="request_key",
            )
        return receipt_from(known.answer)

    async def note(self, caller: Caller, request: RequestKey, receipt: Receipt) -> None:
        """Keep the answer to a call that had no effect.

        Raises:
            StorageFull, BackendError: It could not be kept.
        """
        text = receipt_to_text(receipt.info, receipt.touched, is_changed=False)
        key = Key(caller.space, caller.user, receipt.info.handle)
        await self._backend.note_request(key, request, text, now=self._clock.now())
