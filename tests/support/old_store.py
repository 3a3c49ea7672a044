"""A store as the first version of the schema made it."""

from __future__ import annotations

from pathlib import Path

import apsw

from mcpstated.daemon import evaluation
from mcpstated.daemon.backends import schema, writing
from mcpstated.daemon.backends.interface import Key
from mcpstated.daemon.testing import ManualTime
from mcpstated.protocol.documents import Document, check_document
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.store import Caller, HandleId

OLD_HANDLE = HandleId("old_aaaaaaaa")
OLD_DOCUMENT: Document = {"l": ["as it was"]}
"""What it holds."""


def make_old_store(path: Path) -> None:
    """Make a store with the first version of the schema and one handle."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = apsw.Connection(str(path))
    try:
        with db:
            schema.MIGRATIONS[0](db)
            db.pragma("application_id", schema.APPLICATION_ID)
            db.pragma("user_version", 1)
        document = OLD_DOCUMENT
        minted = evaluation.mint(
            Caller("alice", "laptop/claude-code"),
            Key("agent", "alice", OLD_HANDLE),
            kind="old",
            document=document,
            size_bytes=check_document(document, limits=Limits()),
            ttl_days=None,
            title="Old",
            now=ManualTime().wall - 1,
        )
        writing.append(db, [minted.step.change], {})
        db.pragma("journal_mode", "WAL")
    finally:
        db.close()
