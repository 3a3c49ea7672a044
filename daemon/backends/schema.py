"""The tables of a store in SQLite, and the migrations that lead to them.

`handles` holds metadata only, so that lists never read a document. `changes` is the log, its key the
store-wide revision; `checkpoints` are the documents that replay starts from. A new version of the
schema is one more function at the end of `MIGRATIONS`; all that are missing run in one transaction.
Every function here runs in a connection's worker thread.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw

from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.failpoints import failpoint

APPLICATION_ID = 0x6D637073
"""The letters `mcps`; SQLite keeps it at byte 68 of the file."""


def _version_1(db: apsw.Connection) -> None:
    db.execute(
        """
        CREATE TABLE handles (
            id INTEGER PRIMARY KEY,
            space TEXT NOT NULL,
            user TEXT NOT NULL,
            handle TEXT NOT NULL,
            kind TEXT NOT NULL,
            title TEXT,
            version INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            expires_at REAL,
            ttl_days REAL,
            last_writer TEXT NOT NULL,
            size_bytes INTEGER NOT NULL,
            outline TEXT NOT NULL,
            words TEXT NOT NULL,
            oldest_version INTEGER NOT NULL,
            history_bytes INTEGER NOT NULL,
            deleted_at REAL,
            UNIQUE (space, user, handle)
        ) STRICT;

        -- Serves lists in their order and filters from its own pages. Nothing else of the row that a patch
        -- changes is indexed. `deleted_at` is always null in it, but SQLite would look at the row for it.
        CREATE INDEX handles_by_revision ON handles (space, user, revision DESC, kind, expires_at, deleted_at)
            WHERE deleted_at IS NULL;
        CREATE INDEX handles_by_expiry ON handles (expires_at)
            WHERE expires_at IS NOT NULL AND deleted_at IS NULL;
        CREATE INDEX handles_deleted ON handles (deleted_at)
            WHERE deleted_at IS NOT NULL;

        -- How many live handles there are, expired ones included, so that nobody has to count them.
        CREATE TABLE holdings (
            space TEXT NOT NULL,
            user TEXT NOT NULL,
            kind TEXT NOT NULL,
            handles INTEGER NOT NULL,
            PRIMARY KEY (space, user, kind)
        ) STRICT, WITHOUT ROWID;

        -- AUTOINCREMENT: a revision is never used again, even after its change was folded away.
        CREATE TABLE changes (
            revision INTEGER PRIMARY KEY AUTOINCREMENT,
            handle_id INTEGER NOT NULL REFERENCES handles (id),
            version INTEGER NOT NULL,
            action TEXT NOT NULL,
            body TEXT NOT NULL,
            writer TEXT NOT NULL,
            at REAL NOT NULL,
            UNIQUE (handle_id, version)
        ) STRICT;

        CREATE TABLE checkpoints (
            handle_id INTEGER NOT NULL REFERENCES handles (id),
            version INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            title TEXT,
            expires_at REAL,
            ttl_days REAL,
            writer TEXT NOT NULL,
            at REAL NOT NULL,
            document TEXT NOT NULL,
            PRIMARY KEY (handle_id, version)
        ) STRICT;

        CREATE TABLE ledger (
            origin BLOB NOT NULL,
            sequence INTEGER NOT NULL,
            space TEXT NOT NULL,
            user TEXT NOT NULL,
            revision INTEGER NOT NULL,
            receipt TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (origin, sequence, space, user)
        ) STRICT, WITHOUT ROWID;

        CREATE TABLE meta (
            name TEXT PRIMARY KEY,
            value TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;
        """
    )


def _version_2(db: apsw.Connection) -> None:
    db.execute(
        """
        -- When a deleted handle goes for good; null is at once.
        ALTER TABLE handles ADD COLUMN trash_until REAL;
        DROP INDEX handles_deleted;
        CREATE INDEX handles_removable ON handles (coalesce(trash_until, 0))
            WHERE deleted_at IS NOT NULL;
        CREATE INDEX handles_in_trash ON handles (space, user, deleted_at)
            WHERE trash_until IS NOT NULL;

        -- The answers to calls that their callers named, for when they repeat them.
        CREATE TABLE request_keys (
            space TEXT NOT NULL,
            user TEXT NOT NULL,
            request_key TEXT NOT NULL,
            fingerprint BLOB NOT NULL,
            revision INTEGER NOT NULL,
            receipt TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (space, user, request_key)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX request_keys_by_age ON request_keys (at);
        """
    )


MIGRATIONS: tuple[Callable[[apsw.Connection], None], ...] = (_version_1, _version_2)
SCHEMA_VERSION = len(MIGRATIONS)


def create(db: apsw.Connection) -> None:
    """Lay the newest schema out in an empty database, in one transaction."""
    with db:
        db.pragma("application_id", APPLICATION_ID)
        _migrate_from(db, 0)


def check_identity(db: apsw.Connection, path: str) -> int:
    """Return the schema's version.

    Raises:
        StoreRefused: It is another program's database, or comes from a newer version of this one.
    """
    return check_numbers(db.pragma("application_id"), db.pragma("user_version"), path)


def check_numbers(application_id: object, version: object, path: str) -> int:
    """Return the schema's version. Raises StoreRefused as `check_identity` does."""
    if application_id != APPLICATION_ID:
        raise StoreRefused(f"{path} is a database of another program; it was left as it is.")
    if not isinstance(version, int) or version < 1:
        raise StoreRefused(f"{path} has no readable schema version; it was left as it is.")
    if version > SCHEMA_VERSION:
        raise StoreRefused(
            f"{path} has schema version {version} and this program knows versions up to {SCHEMA_VERSION}. "
            "A newer mcpstated wrote it: upgrade this one. The file was left as it is."
        )
    return version


def pending(db: apsw.Connection) -> tuple[int, int] | None:
    """Return the version that a store has, and the one that it must be brought to; None if it has that."""
    version = db.pragma("user_version")
    return None if version == SCHEMA_VERSION else (version, SCHEMA_VERSION)


def migrate(db: apsw.Connection) -> None:
    """Bring an older schema to the newest version: all steps or none."""
    if pending(db) is None:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        failpoint("migration.after_begin")
        _migrate_from(db, db.pragma("user_version"))
        failpoint("migration.before_commit")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    failpoint("migration.after_commit")


def _migrate_from(db: apsw.Connection, version: int) -> None:
    for step in MIGRATIONS[version:]:
        failpoint("migration.before_step")
        step(db)
        failpoint("migration.after_step")
    db.pragma("user_version", SCHEMA_VERSION)
