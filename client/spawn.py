r"""Starting the daemon as a process of its own, and hearing from it that it is ready.

    this process --posix_spawn--> detach.py --setsid, fork, exec--> the daemon
         \_________________ pipe: "ready\n" or "failed: REASON\n" ________/

`posix_spawn` and not `fork`, because the caller may have threads; `detach.py` is a script that runs
in a bare interpreter, so that everything between fork and exec happens where nothing else goes on.
"""

from __future__ import annotations

import fcntl
import os
import select
import time

from mcpstated.children import wait_for_exit
from mcpstated.interpreter import import_settings, interpreter_path
from mcpstated.link import SLICE_SECONDS, DaemonNotReady
from mcpstated.protocol.errors import DaemonUnavailable
from mcpstated.protocol.paths import Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

READY_FD = 3
"""The daemon's end of the ready pipe."""
_DETACH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "detach.py")
_PASSED_ON = ("HOME", "PATH", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR")
_PASSED_ON_PREFIXES = ("LC_", "MCPSTATED_", "MCPSTATE_")
_PERSONAL = ("_WRITER", "_USER", "_NO_SPAWN")
"""Ends of the names that say something about one client, not about the daemon."""
_MAX_REASON_BYTES = 4096


def daemon_command() -> tuple[list[str], str | None]:
    """Return the command that runs the daemon, without its options, and the PYTHONPATH that it needs.

    Raises:
        DaemonUnavailable: No interpreter was found.
    """
    flags, python_path = import_settings()
    return [interpreter_path(), *flags, "-m", "mcpstated.cli", "daemon"], python_path


def daemon_environment(environ: Mapping[str, str], paths: Paths) -> dict[str, str]:
    """Return the part of a client's environment that a daemon for everyone may inherit."""
    kept = {
        name: value
        for name, value in environ.items()
        if (name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES))
        and not (name.startswith("MCPSTATE") and name.endswith(_PERSONAL))
    }
    kept.pop("MCPSTATED_SOCKET", None)
    if paths.socket != Paths(paths.data_dir).socket:
        kept["MCPSTATED_SOCKET"] = paths.socket
    return kept


def spawn_daemon(
    paths: Paths,
    *,
    environ: Mapping[str, str],
    deadline: float,
    command: Sequence[str] | None = None,
    creates_store: bool = True,
    on_wait: Callable[[], None] | None = None,
) -> int:
    """Start a daemon that belongs to nobody, and return the pipe on which it says that it is ready.

    If `detach.py` is killed, that looks like a daemon that died without a word.

    Args:
        deadline: On the monotonic clock.
        command: What to run instead of the daemon of this installation; the same options are added.
        creates_store: False if the daemon is to refuse to start where there is no store.
        on_wait: Called at least four times a second while waiting; what it raises ends the start.

    Raises:
        DaemonUnavailable: It could not be started at all.
        DaemonNotReady: It was still being started at the deadline.
    """
    python_path = None
    if command is None:
        command, python_path = daemon_command()
    environment = daemon_environment(environ, paths)
    if python_path:
        environment["PYTHONPATH"] = python_path
    options = ["--data-dir", paths.data_dir, "--ready-fd", str(READY_FD)]
    if not creates_store:
        options.append("--no-create")
    arguments = [interpreter_path(), "-I", "-S", _DETACH, paths.log, *command, *options]
    reading, writing = os.pipe()
    try:
        # A descriptor that is duplicated onto itself would stay closed-on-exec on some systems.
        source = fcntl.fcntl(writing, fcntl.F_DUPFD_CLOEXEC, READY_FD + 1)
        try:
            status = _run(arguments, environment, source, deadline, on_wait)
        finally:
            os.close(source)
    except BaseException as error:
        os.close(reading)
        if not isinstance(error, OSError):
            raise
        raise DaemonUnavailable(
            f"{arguments[0]} cannot be started: {error.strerror}.", hint="Run `mcpstated daemon` by hand."
        ) from error
    finally:
        os.close(writing)
    if status is None:
        os.close(reading)
        raise DaemonNotReady("The daemon is still being started.")
    if status > 0:
        os.close(reading)
        raise DaemonUnavailable(
            f"{arguments[0]} could not start the daemon (exit status {status}).",
            hint="Run `mcpstated daemon` by hand.",
        )
    return reading


def wait_until_ready(
    reading: int, *, deadline: float, on_wait: Callable[[], None] | None = None
) -> str | None:
    """Wait for the daemon's word on the pipe, and close the pipe.

    Args:
        deadline: On the monotonic clock.

    Returns:
        None once it is ready; else its reason, which is empty if it died without a whole line.

    Raises:
        DaemonNotReady: It was still starting at the deadline.
    """
    said = b""
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    try:
        while b"\n" not in said and len(said) < _MAX_REASON_BYTES:
            left = deadline - time.monotonic()
            if not poller.poll(max(0.0, min(left, SLICE_SECONDS)) * 1000):
                if left <= 0:
                    raise DaemonNotReady("The daemon is still starting.")
                if on_wait is not None:
                    on_wait()
                continue
            data = os.read(reading, _MAX_REASON_BYTES)
            if not data:
                break
            said += data
    finally:
        os.close(reading)
    if b"\n" not in said and len(said) < _MAX_REASON_BYTES:
        return ""
    line = said.partition(b"\n")[0].decode("utf-8", "replace").strip()
    if line == "ready":
        return None
    return line.removeprefix("failed:").strip()


def _run(
    arguments: list[str],
    environment: dict[str, str],
    ready_fd: int,
    deadline: float,
    on_wait: Callable[[], None] | None,
) -> int | None:
    """Run `detach.py` to its end, which is before the daemon is ready; return its exit status.

    None means that it did not end before the deadline.
    """
    pid = os.posix_spawn(
        arguments[0],
        arguments,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, ready_fd, READY_FD),
        ],
    )
    try:
        return wait_for_exit(pid, deadline=deadline, on_wait=on_wait)
    except ChildProcessError:  # the host program ignores SIGCHLD, or waits for everyone's children
        return 0
