"""The handles in a database of mcpstate, read as they lie on users' disks and while it is in use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from mcpstated.protocol.documents import parse
from mcpstated.protocol.errors import InvalidInput, McpStateError
from mcpstated.protocol.handle_record import HandleRecord, Refused, record_from_json
from mcpstated.protocol.limits import MIB, Limits

DEFAULT_PATH = "~/.mcpstate/state.db"
"""Where mcpstate keeps its store unless it is told otherwise."""
_ANY = replace(Limits(), max_state_bytes=64 * MIB, max_depth=100_000)
"""The daemon has the last word on every document; what is read here only has to be JSON."""
_FOREIGN_KIND = re.compile(r"[^a-z0-9-]+")
_MAX_KIND_CHARS = 32


@contextmanager
def mcpstate_database(path: Path) -> Iterator[apsw.Connection]:
    """Open a database of mcpstate for reading, as it is and while it is in use.

    Raises:
        InvalidInput: There is none, or it has another shape.
    """
    if not path.is_file():
        raise InvalidInput(f"There is no database of mcpstate at {path}.", field="file")
    try:
        url = f"file:{quote(str(path.resolve()))}?mode=ro"
        db = apsw.Connection(url, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            db.set_busy_timeout(5_000)
            db.execute(_MCPSTATE_ROWS + " LIMIT 0").fetchall()
            yield db
        finally:
            db.close()
    except apsw.Error as error:
        raise InvalidInput(
            f"{path} cannot be read as a database of mcpstate: {error}.", field="file"
        ) from error


_MCPSTATE_ROWS = (
    "SELECT user, handle, kind, state, version, created_at, updated_at, expires_at, last_writer FROM handles"
)


def records_of_mcpstate(db: apsw.Connection) -> Iterator[HandleRecord | Refused]:
    """Return the handles of a database of mcpstate, by user."""
    rows: Any = db.execute(_MCPSTATE_ROWS + " ORDER BY user, handle")
    for user, handle, kind, state, version, created_at, updated_at, expires_at, writer in rows:
        try:
            yield record_from_json(
                {
                    "space": "agent",
                    "user": user,
                    "handle": handle,
                    "kind": kind_of(kind),
                    "version": version,
                    "created_at": created_at,
                    "updated_at": updated_at,
                    "expires_at": expires_at,
                    "ttl_days": _ttl_days(updated_at, expires_at),
                    "last_writer": writer or "",
                    "state": parse(state, field="state", limits=_ANY),
                },
                limits=_ANY,
            )
        except McpStateError as error:
            yield Refused(str(handle), error.message)


def kind_of(kind: object) -> str:
    """Return a kind of ours that is as near as possible to one of mcpstate, which takes any text."""
    near = _FOREIGN_KIND.sub("-", str(kind or "").lower()).strip("-")[:_MAX_KIND_CHARS]
    return near if near[:1].isalpha() else f"k-{near}".rstrip("-")[:_MAX_KIND_CHARS] if near else "state"


def _ttl_days(updated_at: object, expires_at: object) -> float | None:
    """Return the time to live that led to an expiry, as far as it can be told."""
    if not isinstance(updated_at, int | float) or not isinstance(expires_at, int | float):
        return None
    days = (expires_at - updated_at) / 86_400
    return days if 0 < days <= Limits().max_ttl_days else None
