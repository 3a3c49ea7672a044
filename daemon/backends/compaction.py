"""Giving the pages that are free inside the database back to the disk, in small steps.

Pages that folding and purging leave free are used again by what is stored next, so some are kept: giving
back moves pages from the file's end into the gaps, and that has to be written too. A store that was made
before version 2 of the schema cannot give any back: it uses them again, and never grows for want of them.
Runs in the writer connection's worker thread.
"""

from __future__ import annotations

from typing import Any

import apsw

from mcpstated.daemon.backends.writing import in_transaction
from mcpstated.daemon.failpoints import failpoint

KEPT_PART = 8
"""Free pages are kept up to one such part of the file,"""
KEPT_BYTES = 4 * 1024 * 1024
"""or up to so many bytes, if that is more."""
_INCREMENTAL = 2
"""What `PRAGMA auto_vacuum` answers where single pages can be given back."""


def is_due(db: apsw.Connection) -> bool:
    """Return whether more pages are free than are kept, and can be given back."""
    free: Any = db.pragma("freelist_count")
    pages: Any = db.pragma("page_count")
    page_size: Any = db.pragma("page_size")
    kept = max(pages // KEPT_PART, KEPT_BYTES // page_size)
    return bool(free > kept and db.pragma("auto_vacuum") == _INCREMENTAL)


def compact(db: apsw.Connection) -> None:
    """Give some pages back. The file is cut when the last ones that are due were given back."""
    in_transaction(db, lambda: db.execute("PRAGMA incremental_vacuum(64)").fetchall(), step="compaction")
    if not is_due(db):
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        failpoint("compaction.after_checkpoint")
