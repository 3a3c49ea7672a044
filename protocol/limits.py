"""Every bound of the system in one place: name, unit and default.

Passing a limit gives the one error that its comment names. The daemon takes them from the settings and
enforces them. Only `max_frame_bytes` binds its peers too, so that one is told in `welcome`. Bounds that
nobody sets stand beside the code that keeps them: timeouts, and what a shim holds on its own.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds that one daemon enforces."""

    max_state_bytes: int = MIB  # UTF-8 bytes of a document's compact JSON; state_too_large
    max_depth: int = 128  # containers inside each other, the root counts as one; invalid_input
    max_integer_digits: int = 4300  # decimal digits of an integer; invalid_input
    max_handles_per_user: int = 10_000  # live handles in one space; quota_exceeded
    max_ttl_days: float = 36_525.0  # invalid_input
    max_title_chars: int = 200  # invalid_input
    max_writer_chars: int = 200  # invalid_input
    max_user_chars: int = 256  # invalid_input
    max_operations: int = 1_000  # operations in one patch; invalid_input
    max_frame_bytes: int = 16 * MIB  # the connection ends with a reason
    max_sessions: int = 1_024  # the connection is refused with a reason
    max_in_flight: int = 128  # requests of one session; the daemon stops reading until one ends
    max_watches: int = 16  # watches of one session; invalid_input
    max_unread_bytes: int = 8 * MIB  # output that a peer has not read; the session is closed
    unread_grace_seconds: float = 10.0  # how long the peer may take no byte at all before that
    reply_budget_bytes: int = 64 * 1024  # a load above it answers with the outline
    max_list_page: int = 200  # handles in one page of a list; invalid_input
    history_changes: int = 1_000  # changes kept per handle; older ones are folded
    history_days: float = 30.0  # age of a change; older ones are folded
    history_bytes: int = 16 * MIB  # bytes of changes kept per handle; older ones are folded
    backup_hours: float = 24.0  # how often a backup is made by itself; 0 makes none
    backup_files: int = 7  # backups kept of those made by themselves; the oldest go first
    backup_bytes: int = 1024 * MIB  # their size together; the newest always stays
    trash_days: float = 7.0  # how long a deleted handle can be brought back; 0 deletes at once
    trash_handles: int = 1_000  # deleted handles kept per user and space; the oldest go first
    trash_bytes: int = 256 * MIB  # their documents and histories together, per user and space; likewise
    max_request_key_chars: int = 200  # invalid_input
    cache_bytes: int = 64 * MIB  # documents kept in memory, by their JSON size
    wal_bytes: int = 64 * MIB  # size that the write-ahead log is truncated to
    wal_max_bytes: int = 1024 * MIB  # size that it may reach while somebody's read keeps it; storage_full
    reserve_bytes: int = MIB  # disk space kept for clearing up when the disk is full; 0 for none
    log_file_bytes: int = 5 * MIB  # size at which a log file is rotated
    log_files: int = 5  # log files kept, the current one included
