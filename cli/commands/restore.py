"""`mcpstated restore`: put a backup in the place of the store."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpstated.cli import words
from mcpstated.cli.blocks import Line
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.options import Invocation, data_dir_option, json_option, pass_invocation
from mcpstated.cli.refusals import refusals_as_errors
from mcpstated.cli.result import Problem, Result
from mcpstated.cli.settings import settings_of
from mcpstated.protocol.errors import DaemonUnavailable

if TYPE_CHECKING:
    from mcpstated.answers import SessionInfo
    from mcpstated.protocol.paths import Paths

_LOCK_SECONDS = 60.0
"""How long to wait for a daemon that is being started or is on its way out."""
_STRANGER_SECONDS = 2.0
"""How long to wait for a daemon that was not asked to leave."""


@click.command("restore")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--force", is_flag=True, help="Even while clients are connected; they go on with the new store."
)
@json_option
@data_dir_option
@pass_invocation
def command(invocation: Invocation, file: str, yes: bool, force: bool) -> Result:
    """Put a backup in the place of the store. The store that is there now is kept aside.

    Refused while clients are connected, unless --force is given. The backup is examined first.
    """
    from mcpstated.daemon.maintenance import restore
    from mcpstated.protocol.directories import make_private_directory

    settings = settings_of(invocation)
    source, database = Path(file).absolute(), Path(settings.database).resolve()
    paths, environ = settings.paths, invocation.environ()
    if not force and (in_use := _in_use(paths, environ)) is not None:
        return in_use
    make_private_directory(paths.data_dir)
    with _only_restore(database):
        with refusals_as_errors(source):
            verdict = restore.prepare(source, database)
        try:
            what = f"{words.count(verdict.handles, 'handle')}, revision {verdict.revision:,}"
            if not yes and not _is_confirmed(database, what):
                declined = Problem("declined", "Nothing was changed.")
                return Result("restore", ExitCode.FAILED, errors=(declined,))
            if not force and (in_use := _in_use(paths, environ)) is not None:
                return in_use  # somebody came while the question stood there
            aside = _exchange(paths, environ, database)
        finally:
            restore.discard(database)
    kept = "" if aside is None else f" The store that was there is now {aside}."
    return Result(
        "restore",
        data={
            "path": str(database),
            "revision": verdict.revision,
            "handles": verdict.handles,
            "replaced": None if aside is None else str(aside),
        },
        blocks=(Line(f"{database} is restored: {what}.{kept}", "good"),),
    )


def _in_use(paths: Paths, environ: Mapping[str, str]) -> Result | None:
    """Return the refusal if anybody is connected."""
    connected = _connected(paths, environ)
    if not connected:
        return None
    named = ", ".join(f"{session.client or session.role} (pid {session.pid})" for session in connected)
    problem = Problem(
        "in_use",
        f"{words.count(len(connected), 'client')} connected: {named}. Nothing was changed.",
        hint="Close them first; or say --force, and they go on with the restored store.",
    )
    return Result("restore", ExitCode.FAILED, errors=(problem,))


@contextmanager
def _only_restore(database: Path) -> Iterator[None]:
    """Let no other restore of this store go on: it would write into the very file that is put there.

    Raises:
        DaemonUnavailable: Another one goes on.
    """
    from mcpstated.daemon.lock import FileLock

    with FileLock(f"{database}-restore.lock") as lock:
        if not lock.try_acquire():
            raise DaemonUnavailable(f"Another restore of {database} is going on. Nothing was changed.")
        yield


def _connected(paths: Paths, environ: Mapping[str, str]) -> list[SessionInfo]:
    """Return who else talks to a daemon that runs."""
    import os

    import trio

    from mcpstated.cli.status_view import others
    from mcpstated.connection import open_client
    from mcpstated.launch import DaemonNotRunning

    async def ask() -> list[SessionInfo]:
        async with open_client(paths, role="cli", environ=environ, start=False) as client:
            return others((await client.status()).sessions, own_pid=os.getpid())

    try:
        return trio.run(ask)
    except DaemonNotRunning:
        return []


def _is_confirmed(database: Path, what: str) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError(
            "This replaces the store and there is no terminal to ask on; say --yes if you mean it."
        )
    return click.confirm(f"Replace {database} by the backup ({what})?", default=False, err=True)


def _exchange(paths: Paths, environ: Mapping[str, str], database: Path) -> Path | None:
    """Stop the daemon and keep others from starting one, for as long as the exchange takes."""
    import trio

    from mcpstated.cli.retire import retire
    from mcpstated.daemon.lock import FileLock
    from mcpstated.daemon.maintenance import restore
    from mcpstated.protocol.paths import Paths

    with ExitStack() as locks:
        deadline = time.monotonic() + _LOCK_SECONDS

        def take(path: str) -> None:
            lock = locks.enter_context(FileLock(path))
            while not lock.try_acquire():
                if time.monotonic() > deadline:
                    raise DaemonUnavailable(
                        "A daemon is being started, or holds the store. Nothing was changed.", hint=path
                    )
                time.sleep(0.05)

        take(paths.start_lock)
        trio.run(lambda: retire(paths, environ=environ, reason="upgrading"))
        take(paths.lock)
        if not database.parent.samefile(paths.data_dir):  # a daemon of another directory may serve it
            deadline = time.monotonic() + _STRANGER_SECONDS
            take(Paths(str(database.parent)).lock)
        try:
            return restore.exchange(database, now=time.time())
        except OSError as error:
            raise DaemonUnavailable(
                f"The store could not be exchanged: {error.strerror}. Run this command again to finish it.",
                hint=str(database),
            ) from error
