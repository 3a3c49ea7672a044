"""What the exit code of `mcpstated` says."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The outcomes that a script can tell apart."""

    OK = 0
    FAILED = 1
    """It was tried and did not work; the error says why."""
    USAGE = 2
    """The command line, an argument or a setting is wrong; nothing was tried."""
    DAEMON_NOT_RUNNING = 3
    VERSION_SKEW = 4
    """Command and daemon speak no common version; `mcpstated restart` replaces the daemon."""
    INTERRUPTED = 130
    """Ctrl-C, as shells count it (128 + SIGINT)."""
