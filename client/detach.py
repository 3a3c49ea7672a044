"""A script, not a module to import: turns itself into a program that belongs to nobody.

    python -I -S detach.py LOG COMMAND...

Run by `spawn` with descriptor 3 as the ready pipe. When it ends, COMMAND is on its way: in a session
of its own, in /, with /dev/null and the log as descriptors 0-2, the ready pipe as 3 and no others,
default signals and none blocked, and files private from creation on. Why it could not be done goes
into the ready pipe. Only the standard library may be imported here: it runs without site packages.
"""

from __future__ import annotations

import os
import signal
import sys

_READY_FD = 3


def detach(log: str, command: list[str]) -> None:
    """Run `command` in a process that has nothing of the caller's; return in the caller only."""
    os.setsid()
    if os.fork():
        return  # the daemon is not a session leader, so no terminal can become its own
    try:
        os.chdir("/")
        os.umask(0o077)
        _redirect(log)
        _close_others()
        _reset_signals()
        os.execve(command[0], command, os.environ)  # noqa: S606
    except OSError as error:
        reason = f"failed: {command[0]} cannot be run: {error.strerror}\n"
        os.write(_READY_FD, reason.encode(errors="replace"))
    finally:
        os._exit(1)


def _redirect(log: str) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK, 0o600)
        os.set_blocking(output, True)
    except OSError:
        output = null  # a daemon without a log is better than none
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _close_others() -> None:
    try:
        highest = max(int(name) for name in os.listdir("/dev/fd"))
    except (OSError, ValueError):
        highest = min(os.sysconf("SC_OPEN_MAX"), 65536)
    os.closerange(_READY_FD + 1, highest + 1)


def _reset_signals() -> None:
    for number in signal.valid_signals():
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # SIGKILL and SIGSTOP cannot be set, nor need they be
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


if __name__ == "__main__":
    detach(sys.argv[1], sys.argv[2:])
