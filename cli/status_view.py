"""The status screen: what `status` shows of a daemon that runs, and of one that does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import mcpstated
from mcpstated.cli import words
from mcpstated.cli.blocks import Block, Column, Fields, Line, Rows

if TYPE_CHECKING:
    from mcpstated.answers import BackupsInfo, Change, SessionInfo, Status
    from mcpstated.protocol.settings import DaemonSettings

CHANGES_SHOWN = 8
_SESSION_COLUMNS = (
    Column("PID", is_number=True),
    Column("ROLE", rank=2),
    Column("CLIENT", grows=True),
    Column("USER"),
    Column("CONNECTED"),
    Column("CALLS", is_number=True),
    Column("NOW", is_number=True, rank=1),
)
_CHANGE_COLUMNS = (
    Column("REVISION", is_number=True),
    Column("CHANGE"),
    Column("HANDLE"),
    Column("V", is_number=True),
    Column("WHEN"),
    Column("WRITER", grows=True),
)


def others(sessions: Sequence[SessionInfo], *, own_pid: int) -> list[SessionInfo]:
    """Return the sessions without the one that asked."""
    return [session for session in sessions if not (session.role == "cli" and session.pid == own_pid)]


def running_data(status: Status, *, own_pid: int) -> dict[str, object]:
    """Return the data of a daemon that runs. `store.size` is `store.size_bytes` under its short name."""
    return {
        "daemon": {**asdict(status.daemon), "started_at": words.iso(status.daemon.started_at)},
        "store": {**asdict(status.store), "size": status.store.size_bytes},
        "backups": _backups_data(status.backups),
        "sessions": [
            {**asdict(session), "connected_at": words.iso(session.connected_at)}
            for session in others(status.sessions, own_pid=own_pid)
        ],
    }


def running_blocks(status: Status, *, now_unix: float, own_pid: int) -> tuple[Block, ...]:
    """Return one screen about a daemon that runs."""
    daemon, store = status.daemon, status.store
    head = (
        f"mcpstated {daemon.version} is running: pid {daemon.pid}, up {words.span(daemon.uptime_seconds)}\n"
    )
    blocks: list[Block] = [Line(head, "good")]
    if daemon.version != mcpstated.__version__:
        blocks.append(
            Line(
                f"This command is version {mcpstated.__version__}. To make them one: mcpstated restart\n",
                "bad",
            )
        )
    holds = (
        f"{words.count(store.handles, 'handle')}, {words.size(store.size_bytes)}, revision {store.revision:,}"
        f" (SQLite {store.sqlite_version}, schema {store.schema_version})"
    )
    cache = f"{words.count(store.cached_documents, 'document')}, {words.size(store.cache_bytes)}"
    blocks.append(
        Fields(
            (
                ("store", store.path),
                ("holds", holds),
                ("in memory", cache),
                ("backups", _backups(status.backups, now_unix)),
                ("socket", daemon.socket),
                ("log", daemon.log),
                ("instance", f"{daemon.instance} (protocol {daemon.protocol})"),
            )
        )
    )
    sessions = others(status.sessions, own_pid=own_pid)
    if sessions:
        return (
            *blocks,
            Line(f"\n{words.count(len(sessions), 'session')}", "strong"),
            _sessions(sessions, now_unix),
        )
    return (*blocks, Line("\nNo client is connected.", "dim"))


def changes_blocks(changes: Sequence[Change], *, now_unix: float) -> tuple[Block, ...]:
    """Return the latest changes, newest first, for the live screen."""
    rows = tuple(
        (
            f"{change.revision}",
            change.action,
            change.handle,
            str(change.version),
            words.ago(change.at, now_unix),
            change.writer,
        )
        for change in list(changes)[::-1][:CHANGES_SHOWN]
    )
    empty = "None since this screen was opened."
    return (Line("\nlatest changes", "strong"), Rows(_CHANGE_COLUMNS, rows, empty=empty))


def down_data(settings: DaemonSettings) -> dict[str, object]:
    """Return the data when no daemon runs: the store is there all the same."""
    return {
        "daemon": None,
        "store": {
            "path": settings.database,
            "exists": Path(settings.database).exists(),
            "size_bytes": _size_bytes(settings.database),
            "size": _size_bytes(settings.database),
        },
        "sessions": [],
    }


def down_blocks(settings: DaemonSettings, *, headline: str, environ: Mapping[str, str]) -> tuple[Block, ...]:
    """Return one screen about a store without a daemon."""
    there = Path(settings.database).exists()
    store = (
        f"{settings.database} ({words.size(_size_bytes(settings.database)) if there else 'not there yet'})"
    )
    rows = (("store", store), ("socket", settings.paths.socket), ("log", settings.paths.log))
    return Line(f"{headline}\n", "bad"), Fields(rows), Line(f"\n{how_it_starts(environ)}", "dim")


def how_it_starts(environ: Mapping[str, str]) -> str:
    """Return what will start the daemon."""
    if environ.get("MCPSTATED_NO_SPAWN"):
        return "MCPSTATED_NO_SPAWN is set, so no client starts it. To start it by hand: mcpstated daemon"
    return "The next client that needs it starts it. To start it now: mcpstated restart"


def _backups_data(backups: BackupsInfo | None) -> dict[str, object] | None:
    return None if backups is None else {**asdict(backups), "newest_at": words.iso(backups.newest_at)}


def _backups(backups: BackupsInfo | None, now_unix: float) -> str:
    if backups is None:
        return "none: the daemon is older than they are"
    if backups.error is not None:
        return f"the last one failed: {backups.error}"
    if backups.newest_at is None:
        return f"none yet (`mcpstated backup` makes one), in {backups.directory}"
    held = f"{words.count(backups.files, 'file')}, {words.size(backups.size_bytes)}"
    return f"newest {words.ago(backups.newest_at, now_unix)}, {held}, in {backups.directory}"


def _sessions(sessions: Sequence[SessionInfo], now_unix: float) -> Rows:
    rows = tuple(
        (
            str(session.pid),
            session.role,
            session.client or session.writer or "(not said yet)",
            session.user,
            words.ago(session.connected_at, now_unix),
            f"{session.requests:,}",
            str(session.in_flight),
        )
        for session in sessions
    )
    return Rows(_SESSION_COLUMNS, rows)


def _size_bytes(database: str) -> int:
    """Return the size of the database with its write-ahead log, from their names alone: never opened here."""
    total = 0
    for path in (database, f"{database}-wal"):
        try:
            total += Path(path).stat().st_size
        except OSError:
            continue
    return total
