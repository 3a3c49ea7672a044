"""The daemon: builds every object, wires them up, and ends them in order.

    storage nursery                      outlives everything that may write
    |- engine.run                        committer, sweeper, connections to SQLite
    '- serving nursery                   cancelled after the grace period
       |- watch_signals                  SIGTERM, SIGINT, SIGHUP -> Stop
       |- watch_files                    socket, lock and database still ours?
       |- watch_idleness                 leaves when nobody is there
       |- library.load                   imports the MCP server while others are served
       |- backups.run                    has a backup made now and then, by a child process
       '- listener.serve
          '- session (one per connection)
             |- outbox writer
             |- relay.run                two MCP loops at most, for a shim
             '- request (one per request in flight), for a library or the command line

The order of an ending: stop accepting; finish and say goodbye; grace; cancel the sessions; flush the
committer; checkpoint the write-ahead log; unlink the socket; release the lock. A second request to
stop skips the grace.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from mcpstated.daemon import failpoints
from mcpstated.daemon.backends.interface import StoreRefused
from mcpstated.daemon.backends.sqlite import SQLiteBackend
from mcpstated.daemon.backups import Backups, interpreter_command
from mcpstated.daemon.clock import StoreClock
from mcpstated.daemon.descriptors import room_for_connections
from mcpstated.daemon.dispatch import Dispatch
from mcpstated.daemon.engine import Engine
from mcpstated.daemon.feed import Feed
from mcpstated.daemon.filewatch import watch_files
from mcpstated.daemon.idle import watch_idleness
from mcpstated.daemon.listener import Listener
from mcpstated.daemon.lock import FileLock
from mcpstated.daemon.logs import close_log, log_event, open_log
from mcpstated.daemon.mcp_library import McpLibrary
from mcpstated.daemon.ready import Ready
from mcpstated.daemon.relay import RunningCalls
from mcpstated.daemon.session import Session
from mcpstated.daemon.sessions import Sessions, SessionServices
from mcpstated.daemon.shares import Shares
from mcpstated.daemon.status import Identity, status
from mcpstated.daemon.stopping import TEXTS, Stop, watch_signals
from mcpstated.protocol.directories import make_private_directory
from mcpstated.protocol.errors import DaemonUnavailable, McpStateError
from mcpstated.protocol.messages import Goodbye
from mcpstated.protocol.paths import Paths
from mcpstated.protocol.version import VERSION
from mcpstated.surface.direct import DirectAnswers

if TYPE_CHECKING:
    from mcpstated.protocol.peers import Peer
    from mcpstated.protocol.settings import DaemonSettings

log = logging.getLogger("mcpstated.daemon")

_GRACE_SECONDS = 5.0
"""How long running requests may take to end after a stop was requested."""
_DRAIN_SECONDS = 30.0
"""How long the committer may take to make durable what it holds."""
_PREDECESSOR_SECONDS = 75.0
"""How long to wait for a daemon that is leaving: its grace, drain, last flush and close together."""
_STRANGER_SECONDS = 3.0
"""How long to wait for a daemon of another data directory that may be leaving."""
_LOCK_POLL_SECONDS = 0.05
_SWITCH_SECONDS = 0.0005
"""How long the event loop may keep a database's worker thread waiting for the interpreter, which it needs
between two statements; Python's own 5 ms is ten times a whole commit."""
_GREETING_CONNECTIONS = 128
"""Connections above `max_sessions` that are let in, so that they can be told why they are refused."""


def run_daemon(settings: DaemonSettings, *, ready_fd: int | None = None, creates_store: bool = True) -> int:
    """Run a daemon until it is asked to stop.

    Args:
        settings: What it is told from outside.
        ready_fd: A pipe on which to report that it serves or why not; closed afterwards.
        creates_store: False to refuse to start where there is no store yet.

    Returns:
        The exit code: 0 after an orderly stop, 1 if it could not start or had to leave.
    """
    os.umask(0o077)
    _reset_signals()
    sys.setswitchinterval(_SWITCH_SECONDS)
    ready = Ready(ready_fd)
    try:
        failpoints.arm(os.environ.get(failpoints.VARIABLE, ""))
        with _owned_directory(settings, to_terminal=ready_fd is None) as (lock, start_lock):
            return trio.run(serve, settings, lock, start_lock, ready, creates_store)
    except BaseExceptionGroup as group:
        return _fail(ready, _first_error(group))
    except (McpStateError, OSError) as error:
        return _fail(ready, error)
    finally:
        close_log()


def _settle_memory() -> None:
    """Take what is loaded once and for all out of the garbage collector's sight.

    A full collection over the modules of the libraries stalls every call for 100 ms and more.
    """
    gc.collect()
    gc.freeze()


def _reset_signals() -> None:
    """Undo what a parent may have blocked or ignored."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def _owned_directory(settings: DaemonSettings, *, to_terminal: bool) -> Iterator[tuple[FileLock, FileLock]]:
    """Hold the data directory for one daemon; gives the lock and, not taken, the start lock.

    A database elsewhere makes its directory one that this daemon holds too: whoever serves that
    directory, or names the same database, holds the same lock.
    """
    paths, limits = settings.paths, settings.limits
    make_private_directory(paths.data_dir)
    with (
        FileLock(paths.lock) as lock,
        FileLock(paths.start_lock) as start_lock,
        FileLock(Paths(os.path.dirname(settings.database)).lock) as database_lock,
    ):
        _take_over(lock, paths.socket)
        os.makedirs(os.path.dirname(settings.database), mode=0o700, exist_ok=True)
        if not os.path.samefile(os.path.dirname(settings.database), paths.data_dir):
            _take_over(database_lock, None)
        open_log(
            paths.log,
            level=settings.log_level,
            max_bytes=limits.log_file_bytes,
            files=limits.log_files,
            to_terminal=to_terminal,
        )
        lock.note(f"pid={os.getpid()} version={VERSION}\n")
        yield lock, start_lock


def _take_over(lock: FileLock, socket_path: str | None) -> None:
    """Take a daemon's lock, waiting for one that is leaving but never for one that serves.

    Args:
        socket_path: Where a daemon that holds the lock would answer; None if that is not known.
    """
    deadline = time.monotonic() + (_PREDECESSOR_SECONDS if socket_path else _STRANGER_SECONDS)
    while not lock.try_acquire():
        if socket_path is None:
            if time.monotonic() > deadline:
                raise DaemonUnavailable(
                    "Another daemon holds the directory of this database.", hint=lock.path
                )
        elif _answers(socket_path):
            raise DaemonUnavailable("A daemon already serves this directory.", hint=socket_path)
        elif time.monotonic() > deadline:
            raise DaemonUnavailable(
                "A daemon holds this directory but does not listen; it may be stuck. See `mcpstated logs`.",
                hint=socket_path,
            )
        time.sleep(_LOCK_POLL_SECONDS)


def _answers(socket_path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(socket_path)
        except TimeoutError:
            return True
        except OSError:
            return False
        return True


async def serve(
    settings: DaemonSettings,
    lock: FileLock,
    start_lock: FileLock,
    ready: Ready,
    creates_store: bool = True,
) -> int:
    """Serve one directory until asked to stop.

    Args:
        lock: The daemon's lock, held.
        start_lock: The lock of whoever starts a daemon, not held; taken for the idle exit.
        ready: Told once the socket accepts.
        creates_store: False to refuse to start where there is no store yet.

    Returns:
        The exit code of the daemon.
    """
    for complaint in settings.complaints:
        log_event(log, "warning", "setting not understood", reason=complaint)
    stop = Stop()
    feed = Feed()
    limits = settings.limits
    clock = StoreClock()
    backend = SQLiteBackend(settings.database, limits=limits, creates_store=creates_store)
    engine = Engine(backend, clock=clock, limits=limits, feed=feed)
    identity = Identity(os.getpid(), VERSION, secrets.token_hex(8), time.time())
    host = socket.gethostname().split(".")[0] or "localhost"
    sessions = Sessions()
    library = McpLibrary(
        engine, limits=limits, host=host, version=VERSION, default_user=settings.default_user
    )

    async def newest_revision() -> int:
        return (await engine.status()).revision

    backups = Backups(
        settings.database,
        limits=limits,
        revision=newest_revision,
        now_unix=time.time,
        command=interpreter_command(),
    )

    async def status_now() -> dict[str, object]:
        return await status(
            identity=identity,
            settings=settings,
            engine=engine,
            sessions=sessions,
            backups=backups,
            now_unix=time.time,
        )

    services = SessionServices(
        direct=DirectAnswers(engine, limits=limits, host=host, version=VERSION),
        library=library,
        dispatch=Dispatch(
            engine,
            feed=feed,
            limits=limits,
            host=host,
            status=status_now,
            stop=lambda reason: stop.request(reason, cause="operation"),
            now_unix=time.time,
            pid=identity.pid,
        ),
        running=RunningCalls(),
        note_settled=engine.note_settled,
        limits=limits,
        build=VERSION,
        instance=identity.instance,
        revision=engine.durable_revision,
        store_mark=engine.mark,
        default_user=settings.default_user,
    )

    max_connections = room_for_connections(limits.max_sessions + _GREETING_CONNECTIONS)
    if max_connections < limits.max_sessions:
        log_event(log, "warning", "descriptors are too few for all sessions", connections=max_connections)
    shares = Shares(max_connections)

    async def serve_connection(accepted: trio.socket.SocketType, peer: Peer) -> None:
        with shares.of(peer.pid).connection() as share:
            session = Session(
                accepted, peer, share=share, sessions=sessions, services=services, pid=identity.pid
            )
            await session.run()

    listener = Listener(
        settings.paths.socket,
        serve_connection,
        admit=lambda peer: shares.of(peer.pid).may_connect(),
        max_connections=max_connections,
    )

    async def watch_for_nobody() -> None:
        if settings.idle_seconds != float("inf"):
            await watch_idleness(
                idle_seconds=settings.idle_seconds,
                sessions=sessions,
                listener=listener,
                start_lock=start_lock,
                stop=stop,
            )

    async def watch_our_files() -> None:
        await watch_files(database=settings.database, lock=lock, listener=listener, stop=stop)

    try:
        async with trio.open_nursery() as storage:
            await storage.start(engine.run)
            async with trio.open_nursery() as serving:
                await serving.start(watch_signals, stop)
                listener.bind()
                await serving.start(listener.serve)
                serving.start_soon(watch_our_files)
                serving.start_soon(watch_for_nobody)
                serving.start_soon(backups.run)
                serving.start_soon(library.load)
                _settle_memory()
                ready.report()
                log_event(
                    log, "info", "daemon started", pid=identity.pid, version=VERSION, path=listener.path
                )
                await stop.requested()
                log_event(log, "info", "daemon stopping", cause=stop.cause, sessions=len(sessions))
                listener.close()
                await _part_with(sessions, stop)
                serving.cancel_scope.cancel()
            with trio.move_on_after(_DRAIN_SECONDS, shield=True):
                await engine.drain()
            storage.cancel_scope.cancel()
    finally:
        listener.close()
        listener.unlink()
    log_event(log, "info", "daemon stopped", cause=stop.cause)
    return 1 if stop.failure else 0


async def _part_with(sessions: Sessions, stop: Stop) -> None:
    """Say goodbye to everybody and wait for what runs, until the grace is over or somebody hurries."""
    text = stop.failure or TEXTS[stop.reason]
    sessions.farewell = Goodbye(stop.reason, text)
    for session in sessions:
        session.part(stop.reason, text)
    async with trio.open_nursery() as nursery:

        async def give_up_when_hurried() -> None:
            await stop.hurried()
            nursery.cancel_scope.cancel()

        nursery.start_soon(give_up_when_hurried)
        with trio.move_on_after(_GRACE_SECONDS):
            while len(sessions):
                await sessions.changed()
        nursery.cancel_scope.cancel()


def _fail(ready: Ready, error: BaseException) -> int:
    if isinstance(error, McpStateError):
        reason = error.message
    elif isinstance(error, StoreRefused):
        reason = str(error)
    elif isinstance(error, OSError):
        reason = f"{error.strerror or type(error).__name__}: {error.filename or ''}".rstrip(": ")
    else:
        log.error("daemon failed", exc_info=error)
        reason = f"The daemon failed ({type(error).__name__}); its log has the details."
    log_event(log, "error", "daemon did not start or had to leave", reason=reason)
    ready.fail(reason)
    return 1


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that says most: one of ours if there is one, else the first."""
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((error for error in leaves if isinstance(error, McpStateError | StoreRefused)), leaves[0])
