"""Whether a store is sound: the file, and that every log leads to what its head says.

Runs while a daemon serves the store, on a backup, or on a store that no daemon will open. Memory is bounded
by the largest document.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from mcpstated.daemon import changes
from mcpstated.daemon.backends import reading
from mcpstated.daemon.backends.interface import Key, StoredHandle
from mcpstated.daemon.backends.schema import SCHEMA_VERSION, migrate
from mcpstated.daemon.maintenance.files import is_compressed, open_read_only, unpack
from mcpstated.protocol.store import HandleId

MAX_PROBLEMS = 1_000
_PAGE_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    where: str
    """A handle with its user, or what of the file it is."""
    what: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found."""

    path: str
    schema_version: int
    revision: int
    handles: int
    """Handles that were looked at, those in the trash included."""
    changes: int
    """Entries of the log."""
    problems: tuple[Problem, ...]
    """At most `MAX_PROBLEMS`."""

    @property
    def is_sound(self) -> bool:
        """True if nothing is wrong."""
        return not self.problems


def verify(path: Path) -> Verdict:
    """Examine a store or a backup, compressed or not.

    Raises:
        StoreRefused: It is no store of ours, it is too new, or nothing of it can be read.
        InvalidInput: The compressed file is damaged.
        OSError: It cannot be read, or there is no room to unpack it.
    """
    if not is_compressed(path):
        with open_read_only(path) as db:
            return _examined(db, path)
    with tempfile.TemporaryDirectory(prefix="mcpstated-verify-", dir=path.parent) as directory:
        plain = Path(directory, "state.db")
        unpack(path, plain)
        return verify_alone(plain, named=path)


def verify_alone(path: Path, *, named: Path | None = None) -> Verdict:
    """Examine a database that nobody else has and that has no log.

    Args:
        named: What to call it.

    Raises:
        StoreRefused: As `verify`.
    """
    with open_read_only(path, is_alone=True, named=named) as db:
        return _examined(db, named or path)


def _examined(db: apsw.Connection, path: Path) -> Verdict:
    version = int(db.pragma("user_version"))
    problems = list(_file_problems(db))
    if problems:  # what follows reads the same pages, and would only say so again, handle by handle
        problems = [*problems, *_readable_problems(db, version)][:MAX_PROBLEMS]
    elif version < SCHEMA_VERSION:
        with tempfile.TemporaryDirectory(prefix="mcpstated-verify-", dir=path.parent) as directory:
            return _examined_as_newest(db, path, Path(directory, "state.db"))
    else:
        problems = list(_store_problems(db))
    return Verdict(
        str(path),
        version,
        _count(db, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'changes'"),
        _count(db, "SELECT count(*) FROM handles"),
        _count(db, "SELECT count(*) FROM changes"),
        tuple(problems),
    )


def _examined_as_newest(db: apsw.Connection, path: Path, copy: Path) -> Verdict:
    """Examine a copy that was brought to the newest schema, and so show that it can be."""
    target = apsw.Connection(str(copy))
    try:
        with target.backup("main", db, "main") as backup:
            backup.step(-1)
        migrate(target)
        return _examined(target, path)
    finally:
        target.close()


def _file_problems(db: apsw.Connection) -> Iterator[Problem]:
    try:
        for (text,) in db.execute(f"PRAGMA integrity_check({_PAGE_PROBLEMS})"):
            if text != "ok":
                yield Problem("file", str(text))
        for kind, name in db.execute(
            "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')"
        ):
            yield Problem("file", f"it has the {kind} {name}, and no store has any")
        for table, rowid, parent, _ in db.execute("PRAGMA foreign_key_check"):
            yield Problem("file", f"row {rowid} of {table} belongs to no row of {parent}")
    except (apsw.Error, UnicodeDecodeError) as error:
        yield Problem("file", str(error))


def _readable_problems(db: apsw.Connection, version: int) -> Iterator[Problem]:
    """Look which handles of a damaged file cannot be read."""
    if version < SCHEMA_VERSION:
        return
    try:
        yield from _store_problems(db)
    except (apsw.Error, UnicodeDecodeError) as error:
        yield Problem("file", f"handles could not be listed: {error}")


def _store_problems(db: apsw.Connection) -> Iterator[Problem]:
    last = 0
    while rows := _page(db, last):
        for handle_id, space, user, handle in rows:
            last = handle_id
            where = f"{handle} of {user}" if space == "agent" else f"{handle} of {user} in {space}"
            for what in _handle_problems(db, handle_id, Key(space, user, HandleId(handle))):
                yield Problem(where, what)
    yield from _count_problems(db)


def _page(db: apsw.Connection, after: int) -> list[Any]:
    return db.execute(
        "SELECT id, space, user, handle FROM handles WHERE id > ?"
        " AND (deleted_at IS NULL OR trash_until IS NOT NULL) ORDER BY id LIMIT 500",
        (after,),
    ).fetchall()


def _handle_problems(db: apsw.Connection, handle_id: int, key: Key) -> Iterator[str]:
    """Return what is wrong with one handle, from one snapshot of it."""
    db.execute("BEGIN")
    try:
        stored = reading.find(db, key, with_trash=True)
        if stored is None:  # it went meanwhile
            return
        version, oldest = stored.head.info.version, stored.head.oldest_version
        kept = _count(
            db,
            "SELECT count(*) FROM changes WHERE handle_id = ? AND version > ? AND version <= ?",
            handle_id,
            oldest,
            version,
        )
        beyond = _count(
            db, "SELECT count(*) FROM changes WHERE handle_id = ? AND version > ?", handle_id, version
        )
        if kept != version - oldest or beyond:
            yield f"its log has {kept + beyond} changes after version {oldest}, not {version - oldest}"
        yield from _replay_problems(stored)
    except (apsw.Error, UnicodeDecodeError) as error:
        yield f"it cannot be read: {error}"
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _replay_problems(stored: StoredHandle) -> Iterator[str]:
    try:
        replayed = changes.rebuild_version(stored)
    except Exception as error:
        # whatever it is, it is this handle's trouble; the text may hold parts of a state
        yield f"its log cannot be replayed ({type(error).__name__})"
        return
    said, found = stored.head.info, replayed.info
    for name in ("version", "title", "size_bytes"):
        if getattr(said, name) != getattr(found, name):
            yield f"its {name} is {getattr(said, name)!r}, and its log says {getattr(found, name)!r}"
    if said.expires_at != found.expires_at:
        yield f"its end is {said.expires_at!r}, and its log says {found.expires_at!r}"


def _count_problems(db: apsw.Connection) -> Iterator[Problem]:
    rows: Any = db.execute(
        "WITH live AS (SELECT space, user, kind, count(*) AS handles FROM handles"
        " WHERE deleted_at IS NULL GROUP BY space, user, kind)"
        " SELECT coalesce(l.user, h.user), coalesce(l.kind, h.kind), coalesce(h.handles, 0),"
        " coalesce(l.handles, 0) FROM live l FULL JOIN holdings h USING (space, user, kind)"
        " WHERE coalesce(l.handles, 0) <> coalesce(h.handles, 0)"
    )
    for user, kind, said, found in rows:
        yield Problem("counts", f"{user} is said to hold {said} handles of kind {kind}, and holds {found}")
    newest = _count(db, "SELECT coalesce(max(revision), 0) FROM changes")
    given = _count(db, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'changes'")
    if newest > given:
        yield Problem("counts", f"revision {newest} is stored, and only {given} were given out")


def _count(db: apsw.Connection, sql: str, *bindings: object) -> int:
    try:
        return int(db.execute(sql, bindings).get)
    except apsw.Error:
        return 0
