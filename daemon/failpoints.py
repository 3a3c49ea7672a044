"""Failpoints: named moments at which a test lets the daemon die, fail or stop.

There is one before and one after every durable step, and one around every hand-over on the way of a call.
They do nothing unless `MCPSTATED_FAILPOINTS` arms them before the start:

    MCPSTATED_FAILPOINTS="append.before_commit=kill"     SIGKILL the first time
    MCPSTATED_FAILPOINTS="append.before_commit=kill@3"   the third time
    MCPSTATED_FAILPOINTS="fold.after_begin=error,relay.line_received=stop"

`error` raises OSError(EIO) there, `stop` is SIGSTOP: the process stands still exactly there until SIGCONT.
A new place needs a line in one of the tables here and a call of `failpoint` there. Of a transaction that
goes through `writing.in_transaction` the name of the step is enough.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.wording import quote

VARIABLE = "MCPSTATED_FAILPOINTS"

TRANSACTIONS = {
    "append": "a batch of changes",
    "note_request": "the answer to a call without effect, under its request key",
    "note_time": "the clock's time",
    "expire": "removing handles whose time has passed",
    "empty_trash": "emptying the trash",
    "trim_trash": "letting go of what does not fit into the trash",
    "purge": "removing the rows of handles that are gone for good",
    "forget_settled": "removing ledger rows that are settled",
    "forget_old": "removing ledger rows and request keys that are too old",
    "fold": "folding old history",
    "compaction": "giving free pages back to the disk",
    "overwrite": "writing over what a failed commit has left in the log",
    "migration": "bringing an older schema to the newest version",
}
"""Steps that are one transaction each, with what it stores."""

MOMENTS = {
    "after_begin": "has begun, nothing was written",
    "before_commit": "was written, not committed",
    "after_commit": "was committed, nobody knows it yet",
}
"""The moments that every transaction has."""

PLACES = {
    "append.after_handle": "A handle's row was written, its change was not.",
    "append.after_change": "A change was written, the document and the ledger row of its call were not.",
    "append.after_checkpoint": "A document was written, the ledger row of its call was not.",
    "append.after_ledger": "A ledger row was written, the rest of the batch was not.",
    "fold.after_checkpoint": "A fold wrote the document that history begins with, and removed nothing.",
    "fold.after_start": "A fold moved the beginning of a history, and removed nothing.",
    "compaction.after_checkpoint": "The file was cut to what is left after giving free pages back.",
    "migration.before_copy": "A store of an older schema was found, and no copy of it was made.",
    "migration.after_copy": "The copy of a store of an older schema is written under its other name.",
    "migration.after_keeping": "The copy has its name, flushed to the disk, and the store is as it was.",
    "migration.before_step": "One step of a migration is about to change tables.",
    "migration.after_step": "One step of a migration has changed tables.",
    "tidy.before_checkpoint": "The write-ahead log is about to be moved into the database.",
    "tidy.after_checkpoint": "The write-ahead log was moved into the database and cut.",
    "create.before_draft": "There is no database, and nothing was made yet.",
    "create.after_draft": "The database was laid out under its other name.",
    "create.after_rename": "The database has its name, which is not yet flushed to the disk.",
    "create.after_flush": "The database has its name for good, and was not opened.",
    "open.before_checks": "The database is about to be opened and examined.",
    "open.after_settings": "The database was examined and set up, and serves nobody yet.",
    "backup.before_copy": "A backup is about to copy the store.",
    "backup.after_copy": "A backup has copied the store, and not looked at the copy.",
    "backup.before_rename": "A backup is written under its other name.",
    "backup.after_rename": "A backup has its name, flushed to the disk.",
    "backup.before_rotation": "A backup is there, and the old ones that are too many are too.",
    "backup.after_rotation": "The old backups that were too many are gone.",
    "restore.before_unpack": "A restore has done nothing.",
    "restore.after_unpack": "A restore has unpacked and examined the backup.",
    "restore.before_aside": "The restored store lies ready, so that no daemon opens the old one.",
    "restore.after_aside": "The old store has its other name too, and its log is still in place.",
    "restore.before_rename": "The old store's log is gone, and the restored store not yet in place.",
    "restore.after_rename": "The restored store is in place.",
    "close.before_close": "The last connection is about to close, which moves the log into the database.",
    "close.after_close": "Everything is closed.",
    "write.before_submit": "A write was evaluated, and is not yet queued.",
    "write.after_submit": "A write was queued.",
    "commit.batch_taken": "A batch was taken from the queue and not handed to the storage.",
    "commit.batch_durable": "A batch is durable, and no head has moved.",
    "commit.heads_moved": "The heads have moved, and nobody was answered.",
    "commit.batch_settled": "The callers of a batch were told, and nobody has sent an answer.",
    "relay.line_received": "A line of a shim was received, and nothing was done with it.",
    "relay.call_begun": "A tool call is known to be running, and has not reached the tool.",
    "relay.before_answer": "A tool call has its answer, which is not sent.",
    "relay.after_answer": "An answer to a shim was sent.",
    "relay.before_settled": "A line needs no answer, which the shim was not told.",
    "relay.after_settled": "A shim was told that a line gets no answer.",
    "session.request_received": "A request of a program was received, and nothing was done with it.",
    "session.before_reply": "A request of a program has its answer, which is not sent.",
    "session.after_reply": "An answer to a program was sent.",
}
"""Every other place."""

FAILPOINTS = {
    **{
        f"{step}.{moment}": f"The transaction of {what} {sentence}."
        for step, what in TRANSACTIONS.items()
        for moment, sentence in MOMENTS.items()
    },
    **PLACES,
}
"""All names, with what is true at that moment."""

KILL, ERROR, STOP = "kill", "error", "stop"
ACTIONS = (KILL, ERROR, STOP)


@dataclass(frozen=True, slots=True)
class _Trap:
    action: str
    time: int
    """Which time it snaps, from 1."""
    count: Iterator[int]


_armed: dict[str, _Trap] | None = None


def failpoint(name: str, moment: str = "") -> None:
    """Do what was armed for this place; nothing at all if no place is armed.

    Args:
        name: A name of `FAILPOINTS`, or its first part.
        moment: The second part, where the first is only known to the caller.
    """
    if _armed is not None:
        _reach(f"{name}.{moment}" if moment else name)


def arm(text: str) -> None:
    """Arm places of this process as the environment variable says; an empty text arms none.

    Raises:
        InvalidInput: The text names no failpoint, or nothing that can be done there.
    """
    global _armed  # noqa: PLW0603  # one test of one global is all that an unarmed place may cost
    _armed = _read(text) or None


def _read(text: str) -> dict[str, _Trap]:
    traps = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, what = part.partition("=")
        action, at, number = what.partition("@")
        if name not in FAILPOINTS:
            raise InvalidInput(f"{VARIABLE} names {quote(name)}, which is no failpoint.", field=VARIABLE)
        is_number = number.isascii() and number.isdigit() and int(number) > 0
        if action not in ACTIONS or bool(at) != is_number:
            raise InvalidInput(
                f"{VARIABLE} must say {name}=ACTION or {name}=ACTION@N, with N from 1 and one of the actions "
                f"{', '.join(ACTIONS)}; it says {quote(part)}.",
                field=VARIABLE,
            )
        traps[name] = _Trap(action, int(number or 1), itertools.count(1))
    return traps


def _reach(name: str) -> None:
    assert name in FAILPOINTS, name
    trap = _armed.get(name) if _armed is not None else None
    if trap is None or next(trap.count) != trap.time:
        return
    if trap.action == ERROR:
        raise OSError(errno.EIO, os.strerror(errno.EIO), name)
    # to this thread: if another one had to take it first, this one would go on until then
    signal.pthread_kill(threading.get_ident(), signal.SIGKILL if trap.action == KILL else signal.SIGSTOP)
