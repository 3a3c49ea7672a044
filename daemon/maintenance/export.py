"""Every handle of a store as a line of JSON, from one moment, while the store may be in use.

The first line says what it is; each of the others is a `mcpstated.protocol.handle_record`. Memory is bounded
by the largest handle with its history.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpstated.daemon import changes
from mcpstated.daemon.backends import reading
from mcpstated.daemon.backends.interface import Key, StoredCheckpoint, StoredHandle
from mcpstated.daemon.backends.writing import newest_revision
from mcpstated.daemon.maintenance.files import open_read_only
from mcpstated.protocol.documents import dump
from mcpstated.protocol.errors import BackendError
from mcpstated.protocol.handle_record import (
    FORMAT,
    FORMAT_VERSION,
    HandleRecord,
    RecordedChange,
    RecordedCheckpoint,
    record_to_json,
)
from mcpstated.protocol.store import HandleId
from mcpstated.protocol.version import VERSION

if TYPE_CHECKING:
    import apsw


def export_lines(
    database: Path,
    *,
    now: float,
    user: str | None = None,
    kind: str | None = None,
    handles: Collection[str] = (),
    with_history: bool = False,
) -> Iterator[tuple[str, str]]:
    """Return the lines of an export, each after the handle that it is about, which is empty for the first.

    Lines are without their ends. Expired handles and the trash are left out.

    Args:
        now: Seconds since the Unix epoch.
        user, kind: Only these; None for all.
        handles: Only these; none for all.
        with_history: Each handle's kept changes too.

    Raises:
        StoreRefused: It is no store of ours, it is too new, or it cannot be opened.
        BackendError: A handle is damaged; what came before is good.
    """
    with open_read_only(database) as db:
        db.execute("BEGIN")  # one snapshot for all of it
        yield (
            "",
            dump(
                {
                    "format": FORMAT,
                    "version": FORMAT_VERSION,
                    "exported_at": now,
                    "mcpstated": VERSION,
                    "revision": newest_revision(db),
                }
            ),
        )
        last = 0
        while rows := _page(db, last, now, user, kind, json.dumps(sorted(handles)) if handles else None):
            for handle_id, space, its_user, handle, created_at in rows:
                last = handle_id
                key = Key(space, its_user, HandleId(handle))
                stored = reading.find(db, key, with_trash=False)
                if stored is not None:
                    record = _record(db, key, stored, created_at, handle_id if with_history else None)
                    yield handle, dump(record_to_json(record))


def _page(
    db: apsw.Connection, after: int, now: float, user: str | None, kind: str | None, handles: str | None
) -> list[Any]:
    return db.execute(
        "SELECT id, space, user, handle, created_at FROM handles WHERE id > :after AND deleted_at IS NULL"
        " AND (expires_at IS NULL OR expires_at > :now) AND (:user IS NULL OR user = :user)"
        " AND (:kind IS NULL OR kind = :kind)"
        " AND (:handles IS NULL OR handle IN (SELECT value FROM json_each(:handles)))"
        " ORDER BY id LIMIT 500",
        {"after": after, "now": now, "user": user, "kind": kind, "handles": handles},
    ).fetchall()


def _record(
    db: apsw.Connection, key: Key, stored: StoredHandle, created_at: float, history_of: int | None
) -> HandleRecord:
    try:
        state = changes.rebuild(stored)
        checkpoints, log = _history(db, history_of, stored) if history_of is not None else ((), ())
    except changes.Damaged as error:
        raise BackendError(
            f"What is stored for {key.handle} is damaged and cannot be exported: see `mcpstated verify`."
        ) from error
    info = state.info
    return HandleRecord(
        space=key.space,
        user=key.user,
        handle=info.handle,
        kind=info.kind,
        title=info.title,
        version=info.version,
        created_at=created_at,
        updated_at=info.updated_at,
        expires_at=info.expires_at,
        ttl_days=state.ttl_days,
        last_writer=info.last_writer,
        document=state.document,
        checkpoints=checkpoints,
        changes=log,
    )


def _history(
    db: apsw.Connection, handle_id: int, stored: StoredHandle
) -> tuple[tuple[RecordedCheckpoint, ...], tuple[RecordedChange, ...]]:
    oldest = stored.head.oldest_version
    checkpoints: Any = db.execute(
        "SELECT version, revision, title, expires_at, ttl_days, writer, at, document FROM checkpoints"
        " WHERE handle_id = ? AND version >= ? ORDER BY version",
        (handle_id, oldest),
    )
    log: Any = db.execute(
        "SELECT version, action, writer, at, body FROM changes WHERE handle_id = ? AND version > ?"
        " ORDER BY version",
        (handle_id, oldest),
    )
    return (
        tuple(_checkpoint(StoredCheckpoint(*row)) for row in checkpoints),
        tuple(
            RecordedChange(version, action, writer, at, changes.object_in(body))
            for version, action, writer, at, body in log
        ),
    )


def _checkpoint(stored: StoredCheckpoint) -> RecordedCheckpoint:
    return RecordedCheckpoint(
        stored.version,
        stored.title,
        stored.expires_at,
        stored.ttl_days,
        stored.writer,
        stored.at,
        changes.object_in(stored.document),
    )
