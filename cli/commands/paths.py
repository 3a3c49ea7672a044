"""`mcpstated paths`: every file and directory, what it is for, and whether it is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpstated.cli.blocks import Block, Column, Line, Rows
from mcpstated.cli.options import Invocation, data_dir_option, json_option, pass_invocation
from mcpstated.cli.result import Result
from mcpstated.cli.settings import settings_of
from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.paths import APP_NAME, Paths, default_data_dir

if TYPE_CHECKING:
    from mcpstated.protocol.settings import DaemonSettings


@click.command("paths")
@json_option
@data_dir_option
@pass_invocation
def command(invocation: Invocation) -> Result:
    """Show where everything lies: the store, the socket, the log, the settings."""
    settings, notes = _settings_or_why_not(invocation)
    entries = [
        {"name": name, "path": path, "meaning": meaning, "exists": os.path.lexists(path)}
        for name, path, meaning in files_of(settings)
    ]
    notes += notes_on(settings.paths, os.environ)
    table = Rows(
        (Column("PATH"), Column("THERE"), Column("WHAT", grows=True)),
        tuple(
            (str(entry["path"]), "yes" if entry["exists"] else "no", str(entry["meaning"]))
            for entry in entries
        ),
    )
    blocks: list[Block] = [table, *(Line(f"\n{note}", "dim") for note in notes)]
    return Result("paths", data={"paths": entries, "notes": notes}, blocks=tuple(blocks))


def _settings_or_why_not(invocation: Invocation) -> tuple[DaemonSettings, list[str]]:
    """Return the settings; without `config.toml`, and with a note, if that is what stands in the way."""
    from mcpstated.protocol.settings import settings_from

    try:
        return settings_of(invocation), []
    except InvalidInput as error:
        settings = settings_from(invocation.environ())
        return settings, [
            f"No daemon starts with these settings: {error.message} The paths are those without it."
        ]


def files_of(settings: DaemonSettings) -> list[tuple[str, str, str]]:
    """Return name, path and meaning of everything that belongs to a store."""
    paths = settings.paths
    files = [
        ("data_dir", paths.data_dir, "everything"),
        ("database", settings.database, "the states"),
        ("database_wal", f"{settings.database}-wal", "the newest changes of them"),
        ("database_shm", f"{settings.database}-shm", "an index of those"),
        ("database_reserve", f"{settings.database}-reserve", "nothing; space for clearing up a full disk"),
        ("backups", str(backups_of(settings.database)), "backups made by themselves"),
        ("config", paths.config, "settings, yours to write"),
        ("socket", paths.socket, "where the daemon listens"),
        ("lock", paths.lock, "held while it runs"),
        ("start_lock", paths.start_lock, "held while it starts"),
        ("log", paths.log, "what it did"),
    ]
    older = range(1, settings.limits.log_files)
    files += [
        (f"log_{number}", path, "older log")
        for number in older
        if os.path.lexists(path := f"{paths.log}.{number}")
    ]
    return files + _kept_stores(Path(settings.database))


def backups_of(database: str) -> Path:
    """Return where backups lie that have no name of their own."""
    return Path(database).parent / "backups"


def _kept_stores(database: Path) -> list[tuple[str, str, str]]:
    """Return the stores that were put aside, by a restore or before a change of the schema."""
    meanings = {"before-v": "the states before an upgrade", "replaced-": "a store that a restore replaced"}
    return [
        ("kept_store", str(found), meaning)
        for part, meaning in meanings.items()
        for found in sorted(database.parent.glob(f"{database.name}.{part}*"))
    ]


def notes_on(paths: Paths, environ: Mapping[str, str]) -> list[str]:
    """Return what might surprise about where these paths lie."""
    import platformdirs

    notes = []
    standard = default_data_dir(environ.get("HOME") or str(Path.home()))
    elsewhere = platformdirs.user_data_dir(APP_NAME, appauthor=False)
    if paths.data_dir == standard and elsewhere != standard:
        notes.append(
            f"XDG_DATA_HOME points to {elsewhere}, which is not used: MCP clients hand HOME on to what they "
            "start and leave XDG variables out, and there would be two stores. To move the store, set "
            "MCPSTATED_DATA_DIR in every client's configuration."
        )
    if Path(paths.socket).parent != Path(paths.data_dir) and "MCPSTATED_SOCKET" not in environ:
        notes.append(
            "The data directory's path is too long for a socket, so the socket has a directory of its own."
        )
    return notes
