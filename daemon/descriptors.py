"""How many descriptors the daemon may have open, and how many of them may be connections.

A connection too many must be refused by us and not by the system: else the database, the log and the backups
would find no descriptor when they need one.
"""

from __future__ import annotations

import contextlib
import resource

OWN_DESCRIPTORS = 32
"""What the daemon needs for itself: database, locks, log, event loop, child processes."""


def room_for_connections(wanted: int) -> int:
    """Raise this process's limit as far as `wanted` connections need it, and return how many fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OWN_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        with contextlib.suppress(OSError, ValueError):  # some systems allow less than they say
            raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - OWN_DESCRIPTORS))
