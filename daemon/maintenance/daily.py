"""The process that makes one of the backups that happen by themselves, and clears old ones away.

    python -m mcpstated.daemon.maintenance.daily DATABASE DIRECTORY KEEP_FILES KEEP_BYTES

It is the daemon's child, of low priority; it says on stdout, in one line of JSON, what came of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from mcpstated.daemon import failpoints
from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.failpoints import failpoint
from mcpstated.daemon.maintenance.backup import Backup, back_up_beside
from mcpstated.daemon.maintenance.files import flush_directory, remove
from mcpstated.daemon.maintenance.rotation import excess, kept_backups, leftovers
from mcpstated.protocol.errors import McpStateError

_NICENESS = 10


def back_up_and_rotate(
    database: Path, directory: Path, *, keep_files: int, keep_bytes: int, now: float
) -> Backup:
    """Make a backup, then remove what is too many or too much; never the newest.

    Raises:
        StoreRefused, InvalidInput, OSError: As `back_up`; then nothing was removed but leftovers.
    """
    remove(*leftovers(directory))
    backup = back_up_beside(database, directory, now=now)
    going = excess(kept_backups(directory), now=now, keep_files=keep_files, keep_bytes=keep_bytes)
    failpoint("backup.before_rotation")
    remove(*(kept.path for kept in going))
    if going:
        flush_directory(directory)
    failpoint("backup.after_rotation")
    return backup


def main(arguments: list[str]) -> int:
    """Run in a process of its own and return its exit code."""
    database, directory, keep_files, keep_bytes = arguments
    os.umask(0o077)
    with suppress(OSError):
        os.nice(_NICENESS)
    failpoints.arm(os.environ.get(failpoints.VARIABLE, ""))
    try:
        backup = back_up_and_rotate(
            Path(database),
            Path(directory),
            keep_files=int(keep_files),
            keep_bytes=int(keep_bytes),
            now=time.time(),
        )
    except (StoreRefused, McpStateError) as error:
        return _say(error=getattr(error, "message", str(error)))
    except OSError as error:
        return _say(error=f"{error.strerror}: {error.filename or directory}")
    return _say(path=backup.path, size_bytes=backup.size_bytes, revision=backup.revision)


def _say(**fields: object) -> int:
    sys.stdout.write(json.dumps(fields) + "\n")
    return 1 if "error" in fields else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
