"""What a write makes of a handle: pure functions from a state and a request to the next state.

    state v7  +  request   ->   Step (the change to append, state v8)   or   Unchanged
                           ->   an error that says what does not fit

Nothing here waits, reads a clock or touches the disk; the engine calls these between reading a tip and
placing the next one. A request that changes nothing makes no change: version, writer and expiry stay.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from mcpstated.daemon.backends.interface import Key, NewChange
from mcpstated.daemon.changes import (
    Damaged,
    Expiry,
    State,
    Step,
    encode,
    history_from,
    rebuild_newest,
)
from mcpstated.daemon.clock import SECONDS_PER_DAY
from mcpstated.daemon.ledger import receipt_to_text
from mcpstated.protocol import patches
from mcpstated.protocol.difference import difference
from mcpstated.protocol.documents import Document, dump, same, size_of
from mcpstated.protocol.errors import HandleExpired, InvalidInput, StaleWrite
from mcpstated.protocol.moments import moment
from mcpstated.protocol.outline import summary
from mcpstated.protocol.store import (
    KEEP,
    Caller,
    HandleId,
    HandleInfo,
    KeepType,
    Revision,
    Touched,
    Version,
)

if TYPE_CHECKING:
    from mcpstated.protocol.handle_record import HandleRecord
    from mcpstated.protocol.limits import Limits
    from mcpstated.protocol.patches import Operation
    from mcpstated.protocol.store import Action

CHECKPOINT_MIN_BYTES = 4 * 1024
CHECKPOINT_MAX_CHANGES = 4_096

_NAME_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""32 letters and digits; those that people mistake for each other (l, o, 0, 1) are left out."""
_NAME_CHARS = 8


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The request has no effect on this state."""

    touched: tuple[Touched, ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The request has an effect."""

    step: Step
    touched: tuple[Touched, ...] = ()


Evaluation: TypeAlias = Evaluated | Unchanged


class Stale(StaleWrite):
    """A save was based on another version. What the caller is told is in `conflicts`."""

    def __init__(self, handle: HandleId, expected_version: int) -> None:
        super().__init__("The handle has another version.", handle=handle, expected_version=expected_version)
        self.expected_version = expected_version


def new_name(kind: str) -> HandleId:
    """Return a fresh handle: the kind, and 40 bits that nobody can guess."""
    return HandleId(f"{kind}_{''.join(secrets.choice(_NAME_ALPHABET) for _ in range(_NAME_CHARS))}")


def mint(
    caller: Caller,
    key: Key,
    *,
    kind: str,
    document: Document,
    size_bytes: int,
    ttl_days: float | None,
    title: str | None,
    now: float,
) -> Evaluated:
    """Return the first version of a handle."""
    expiry = _expiry(ttl_days, now)
    info = HandleInfo(
        handle=key.handle,
        kind=kind,
        title=title,
        version=Version(1),
        revision=Revision(0),
        created_at=now,
        updated_at=now,
        expires_at=expiry.expires_at,
        last_writer=caller.writer,
        size_bytes=size_bytes,
        outline=summary(document),
    )
    state = State(info, ttl_days, document, tail_changes=0, tail_bytes=0)
    body = encode(title=title, expiry=expiry)
    return Evaluated(Step(_change(caller, key, "mint", 0, body, state, document=dump(document)), state))


def save(
    caller: Caller,
    key: Key,
    state: State,
    *,
    document: Document,
    size_bytes: int,
    expect_version: int,
    ttl_days: float | None | KeepType,
    title: str | None | KeepType,
    now: float,
) -> Evaluation:
    """Return the state with another document.

    Raises:
        HandleExpired: Its time has passed.
        Stale: Its version is not `expect_version`.
    """
    require_live(state, now)
    if state.info.version != expect_version:
        raise Stale(key.handle, expect_version)
    operations = difference(state.document, document, size_bytes=size_bytes)
    new_title: str | None | KeepType = KEEP if title == state.info.title else title
    expiry = None if ttl_days is KEEP else _expiry(ttl_days, now)
    if operations == () and new_title is KEEP and expiry is None:
        return Unchanged()
    step = _advance(
        caller,
        key,
        "save",
        state,
        encode(operations or (), title=new_title, expiry=expiry),
        document=state.document if operations == () else document,
        size_bytes=size_bytes,
        is_whole=operations is None,
        title=new_title,
        expiry=expiry,
        now=now,
    )
    return Evaluated(step)


def patch(
    caller: Caller, key: Key, state: State, operations: Sequence[Operation], *, limits: Limits, now: float
) -> Evaluation:
    """Return the state after all operations.

    Raises:
        HandleExpired: Its time has passed.
        PatchError, StateTooLarge, InvalidInput: The operations do not fit.
    """
    require_live(state, now)
    patched = patches.apply(state.document, state.info.size_bytes, operations, limits=limits)
    if not patched.is_changed:
        return Unchanged(patched.touched)
    step = _advance(
        caller,
        key,
        "patch",
        state,
        encode(patched.effective),
        document=patched.document,
        size_bytes=patched.size_bytes,
        touched=patched.touched,
        now=now,
    )
    return Evaluated(step, patched.touched)


def touch(caller: Caller, key: Key, state: State, *, ttl_days: float | None, now: float) -> Evaluation:
    """Return the state with another end of life, counted from now.

    Raises:
        HandleExpired: Its time has passed.
    """
    require_live(state, now)
    if ttl_days is None and state.info.expires_at is None:
        return Unchanged()
    expiry = _expiry(ttl_days, now)
    return Evaluated(_advance(caller, key, "touch", state, encode(expiry=expiry), expiry=expiry, now=now))


def delete(caller: Caller, key: Key, state: State, *, trash_days: float, now: float) -> Evaluated:
    """Return the end of a handle, expired or not.

    Args:
        trash_days: How long it can be brought back; 0 for not at all.
    """
    info = _next_info(caller, state, state.document, state.info.size_bytes, KEEP, None, now)
    last = State(info, state.ttl_days, state.document, state.tail_changes, state.tail_bytes)
    trash_until = now + trash_days * SECONDS_PER_DAY if trash_days else None
    change = _change(caller, key, "delete", state.info.version, encode(), last, trash_until=trash_until)
    return Evaluated(Step(change, None))


def undelete(caller: Caller, key: Key, state: State, *, now: float) -> Evaluated:
    """Return a deleted handle as live again; a time to live begins anew.

    Args:
        state: As it lies in the trash; its version is that of the deletion.
    """
    expiry = None if state.ttl_days is None else _expiry(state.ttl_days, now)
    return Evaluated(_advance(caller, key, "undelete", state, encode(expiry=expiry), expiry=expiry, now=now))


def adopt(caller: Caller, key: Key, record: HandleRecord, *, now: float) -> Evaluated:
    """Return a handle of another store as one of this store.

    Times that are still to come, by this store's clock, are taken for now.

    Raises:
        InvalidInput: Its time is over, or its history does not lead to its state.
    """
    if record.expires_at is not None and record.expires_at <= now:
        raise InvalidInput(f"{key.handle} expired before it was imported.", field="expires_at")
    info = HandleInfo(
        handle=key.handle,
        kind=record.kind,
        title=record.title,
        version=Version(record.version),
        revision=Revision(0),
        created_at=min(record.created_at, record.updated_at, now),
        updated_at=min(record.updated_at, now),
        expires_at=record.expires_at,
        last_writer=record.last_writer,
        size_bytes=size_of(record.document),
        outline=summary(record.document),
    )
    state = State(info, record.ttl_days, record.document, tail_changes=0, tail_bytes=0)
    if not record.changes:
        change = _change(caller, key, "import", 0, encode(), state, document=dump(record.document))
        return Evaluated(Step(change, state))
    history = history_from(record, now=now)
    try:
        replayed = rebuild_newest(history, info)
    except Damaged:
        replayed = None
    if replayed is None or not same(replayed.document, record.document):
        raise InvalidInput(f"The history of {key.handle} does not lead to its state.", field="history")
    change = _change(caller, key, "import", 0, encode(), replayed)
    return Evaluated(Step(replace(change, history=history), replayed))


def require_live(state: State, now: float) -> None:
    """Raise HandleExpired if the handle's time has passed."""
    expires_at = state.info.expires_at
    if expires_at is None or now < expires_at:
        return
    raise HandleExpired(
        f"The handle {state.info.handle} expired at {moment(expires_at)} and cannot be revived. "
        "Save your state without a handle to start a new one.",
        handle=state.info.handle,
        expired_at=moment(expires_at),
        ttl_days=state.ttl_days,
    )


def _expiry(ttl_days: float | None, now: float) -> Expiry:
    return Expiry(ttl_days, None if ttl_days is None else now + ttl_days * SECONDS_PER_DAY)


def _advance(
    caller: Caller,
    key: Key,
    action: Action,
    state: State,
    body: str,
    *,
    now: float,
    document: Document | None = None,
    size_bytes: int | None = None,
    is_whole: bool = False,
    title: str | None | KeepType = KEEP,
    expiry: Expiry | None = None,
    touched: tuple[Touched, ...] = (),
) -> Step:
    """Return the next version, with a checkpoint if one is due: replay stays short and cheap that way.

    Args:
        document: None if it stays as it is.
        is_whole: The record does not say what became of the document, so it has to be stored whole.
    """
    if document is None or size_bytes is None:
        document, size_bytes = state.document, state.info.size_bytes
    info = _next_info(caller, state, document, size_bytes, title, expiry, now)
    tail_changes, tail_bytes = state.tail_changes + 1, state.tail_bytes + len(body)
    if (
        is_whole
        or tail_bytes > max(size_bytes, CHECKPOINT_MIN_BYTES)
        or tail_changes >= CHECKPOINT_MAX_CHANGES
    ):
        text: str | None = dump(document)
        tail_changes = tail_bytes = 0
    else:
        text = None
    ttl_days = state.ttl_days if expiry is None else expiry.ttl_days
    after = State(info, ttl_days, document, tail_changes, tail_bytes)
    change = _change(caller, key, action, state.info.version, body, after, document=text, touched=touched)
    return Step(change, after)


def _next_info(
    caller: Caller,
    state: State,
    document: Document,
    size_bytes: int,
    title: str | None | KeepType,
    expiry: Expiry | None,
    now: float,
) -> HandleInfo:
    before = state.info
    return HandleInfo(
        handle=before.handle,
        kind=before.kind,
        title=before.title if title is KEEP else title,
        version=Version(before.version + 1),
        revision=Revision(0),
        created_at=before.created_at,
        updated_at=now,
        expires_at=before.expires_at if expiry is None else expiry.expires_at,
        last_writer=caller.writer,
        size_bytes=size_bytes,
        outline=before.outline if document is state.document else summary(document),
    )


def _change(
    caller: Caller,
    key: Key,
    action: Action,
    base: int,
    body: str,
    after: State,
    *,
    document: str | None = None,
    touched: tuple[Touched, ...] = (),
    trash_until: float | None = None,
) -> NewChange:
    receipt = None
    if caller.token is not None or caller.request is not None:
        receipt = receipt_to_text(after.info, touched, is_deleted=action == "delete", trash_until=trash_until)
    return NewChange(
        key=key,
        base=base,
        action=action,
        body=body,
        info=after.info,
        ttl_days=after.ttl_days,
        words=_words_of(after.info),
        document=document,
        token=caller.token,
        receipt=receipt,
        request=caller.request,
        trash_until=trash_until,
    )


def _words_of(info: HandleInfo) -> str:
    """Return what the words of a list's query are looked for in."""
    return f"{info.handle}\n{info.kind}\n{info.title or ''}".casefold()
