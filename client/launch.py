"""Finding the daemon of a store, or starting it: one daemon, however many look for it at once.

    connect --refused--> take the start lock --> connect again --refused--> is the daemon's lock held?
        yes: it is starting or leaving, so wait    no: start it, wait for "ready", connect

Only a refused connection under the start lock counts as "not running"; whoever accepts, however slowly,
is waited for. Who waits for the start lock keeps trying to connect, so that a crowd gets in at once.
A daemon that ends without a word is started again, after longer and longer pauses; one that says why it
cannot start is believed at once. Every wait ends at one deadline. The shim imports this module: no typing,
dataclasses, subprocess.
"""

from __future__ import annotations

import os
import time

from mcpstated.link import (
    DaemonLink,
    DaemonNotReady,
    DaemonNotRunning,
    VersionSkew,
    connect,
    make_hello,
)
from mcpstated.locks import StartLock, is_locked
from mcpstated.protocol.directories import make_private_directory
from mcpstated.protocol.errors import DaemonUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mcpstated.protocol.messages import Hello
    from mcpstated.protocol.paths import Paths

__all__ = [
    "DaemonLink",
    "DaemonNotReady",
    "DaemonNotRunning",
    "VersionSkew",
    "connect",
    "ensure_daemon",
    "make_hello",
]

FIRST_DELAY_SECONDS = 0.01
MAX_DELAY_SECONDS = 0.25
_SERVICE_SECONDS = 5.0
"""How long a service manager may take, and then the service itself, before a daemon is spawned instead."""
_FIRST_PAUSE_SECONDS = 0.05
"""The shortest time from one start to the next, where no daemon stays; doubled with each."""
_MAX_PAUSE_SECONDS = 1.0


def ensure_daemon(
    paths: Paths,
    hello: Hello,
    *,
    timeout_seconds: float = 10.0,
    environ: Mapping[str, str],
    command: Sequence[str] | None = None,
    creates_store: bool = True,
    start_lock: StartLock | None = None,
    on_wait: Callable[[], None] | None = None,
) -> DaemonLink:
    """Connect to the daemon of a store; start it if none runs.

    Args:
        timeout_seconds: Bounds everything together: finding, starting, greeting.
        environ: Where MCPSTATED_NO_SPAWN and the service's home are looked up, and what a daemon that
            is started inherits a part of.
        command: What to start instead of the daemon of this installation; `--data-dir` and `--ready-fd`
            are added.
        creates_store: False if the store has been there before: where it is gone, no daemon is started, so
            that nobody takes an empty store for it.
        start_lock: The lock, if the caller holds it already; it stays held.
        on_wait: Called at least four times a second while waiting; what it raises ends the search.

    Raises:
        DaemonNotRunning: There is none, and MCPSTATED_NO_SPAWN forbids starting one.
        VersionSkew: The daemon that runs speaks no common version; the text says what to do.
        DaemonNotReady: It did not start or answer in time.
        DaemonUnavailable: It said why it cannot start, or something forbids it; the text says so.
    """
    search = _Search(
        paths, hello, time.monotonic() + timeout_seconds, environ, command, creates_store, start_lock, on_wait
    )
    try:
        return search.run()
    except DaemonNotReady as error:
        raise DaemonNotReady(
            f"No daemon could be reached in time. {error.message}",
            hint=error.details.get("hint", f"Its log is {paths.log}."),
        ) from error
    except OSError as error:
        raise DaemonUnavailable(
            f"Looking for the daemon failed: {error.strerror}.", hint=f"Its data is in {paths.data_dir}."
        ) from error
    finally:
        if start_lock is None:
            search.end()


class _Search:
    """One search for a daemon; holds the start lock from when it is needed until the end."""

    __slots__ = (
        "_command",
        "_creates_store",
        "_deadline",
        "_environ",
        "_hello",
        "_hint",
        "_lock",
        "_on_wait",
        "_pause_seconds",
        "_paths",
        "_spawn_after",
        "_spawns",
    )

    def __init__(
        self,
        paths: Paths,
        hello: Hello,
        deadline: float,
        environ: Mapping[str, str],
        command: Sequence[str] | None,
        creates_store: bool,
        start_lock: StartLock | None,
        on_wait: Callable[[], None] | None,
    ) -> None:
        self._paths = paths
        self._hint = f"Its log is {paths.log}."
        self._hello = hello
        self._deadline = deadline
        self._environ = environ
        self._command = command
        self._creates_store = creates_store
        self._on_wait = on_wait
        self._lock = start_lock
        self._spawns = 0
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._spawn_after: float | None = None
        """Set once the service has been tried: from then on a daemon may be spawned."""

    def run(self) -> DaemonLink:
        delay_seconds = FIRST_DELAY_SECONDS
        while True:
            try:
                left = max(0.0, self._deadline - time.monotonic())
                return connect(self._paths, self._hello, timeout_seconds=left, on_wait=self._on_wait)
            except DaemonNotRunning as error:
                if self._environ.get("MCPSTATED_NO_SPAWN"):
                    raise DaemonNotRunning(
                        "The daemon is not running, and MCPSTATED_NO_SPAWN forbids starting it.",
                        **error.details,
                    ) from error
                reason = self._start_if_dead()
                if reason is None:
                    continue
            except DaemonNotReady as error:
                reason = error
            time.sleep(max(0.0, min(delay_seconds, self._deadline - time.monotonic())))
            if time.monotonic() >= self._deadline:
                raise reason
            delay_seconds = min(delay_seconds * 2, MAX_DELAY_SECONDS)
            if self._on_wait is not None:
                self._on_wait()

    def end(self) -> None:
        """Let others start a daemon."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _start_if_dead(self) -> DaemonNotReady | None:
        """Go one step on, nobody having listened.

        Returns:
            None if it is worth connecting again at once, else why it is not.
        """
        busy = DaemonNotReady("It is starting or leaving and does not listen.")
        if not self._creates_store and not os.path.lexists(self._paths.lock):  # no daemon ever removes it
            raise DaemonUnavailable(
                f"The store in {self._paths.data_dir}, which this client used before, is gone.",
                hint="Put it back, or start this client anew to begin with an empty one.",
            )
        if self._lock is None:
            make_private_directory(self._paths.data_dir)
            try:
                self._lock = StartLock.try_acquire(self._paths.start_lock)
            except OSError as error:
                raise DaemonUnavailable(
                    f"{self._paths.start_lock} cannot be locked: {error.strerror}.", hint=self._paths.data_dir
                ) from error
            return busy if self._lock is None else None
        if is_locked(self._paths.lock):
            return busy
        if self._spawn_after is None:
            self._spawn_after = time.monotonic()
            if self._start_service():
                self._spawn_after += _SERVICE_SECONDS
                return None
        if self._spawn_after <= time.monotonic() < self._deadline and self._spawn():
            return None
        if self._spawns == 0 or is_locked(self._paths.lock):
            return busy
        times = "once" if self._spawns == 1 else f"{self._spawns} times"
        return DaemonNotReady(f"It was started {times} but did not stay.")

    def _start_service(self) -> bool:
        from mcpstated.service import service_command, start_service  # not needed if a daemon runs

        command = service_command(self._paths, self._environ)
        if command is None:
            return False
        patience = min(_SERVICE_SECONDS, self._deadline - time.monotonic())
        return start_service(command, self._environ, timeout_seconds=patience, on_wait=self._on_wait)

    def _spawn(self) -> bool:
        from mcpstated.spawn import spawn_daemon, wait_until_ready  # not needed if a daemon runs

        self._spawns += 1
        self._spawn_after = time.monotonic() + self._pause_seconds
        self._pause_seconds = min(self._pause_seconds * 2, _MAX_PAUSE_SECONDS)
        reading = spawn_daemon(
            self._paths,
            environ=self._environ,
            deadline=self._deadline,
            command=self._command,
            creates_store=self._creates_store,
            on_wait=self._on_wait,
        )
        reason = wait_until_ready(reading, deadline=self._deadline, on_wait=self._on_wait)
        if reason is None:
            return True
        if is_locked(self._paths.lock):
            return False  # somebody started one by hand meanwhile: that one will do
        if reason:
            stop = "" if reason.endswith((".", "!", "?")) else "."
            raise DaemonUnavailable(f"The daemon could not start: {reason}{stop}", hint=self._hint)
        return False
