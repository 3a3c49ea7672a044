"""Directories that only their owner may enter: made with mode 0700, refused if they are anything else.

A umask can only take bits away; what it took from the owner is given back, or nobody could use them.
"""

from __future__ import annotations

import os
import stat

from mcpstated.protocol.errors import DaemonUnavailable


def make_private_directory(path: str) -> None:
    """Make `path` with mode 0700 if it is absent; its parents get the user's usual modes.

    Raises:
        DaemonUnavailable: It is no directory, belongs to somebody else, or others may write to it. The
            message names the path and the reason.
    """
    try:
        _make_parents(path)
        _make(path, 0o700)
    except OSError as error:
        raise DaemonUnavailable(
            f"The directory {path} cannot be made: {error.strerror}.", hint=path
        ) from error
    try:
        status = os.stat(path)
    except OSError as error:
        raise DaemonUnavailable(f"{path} cannot be used: {error.strerror}.", hint=path) from error
    if not stat.S_ISDIR(status.st_mode):
        raise DaemonUnavailable(f"{path} is not a directory.", hint=path)
    if status.st_uid != os.getuid():
        raise DaemonUnavailable(f"{path} belongs to another user (uid {status.st_uid}).", hint=path)
    if status.st_mode & 0o022:
        raise DaemonUnavailable(
            f"{path} may be written to by others (mode {stat.S_IMODE(status.st_mode):04o}); "
            f"run: chmod 700 {path}",
            hint=path,
        )


def _make_parents(path: str) -> None:
    missing = []
    parent = os.path.dirname(path)
    while not os.path.isdir(parent) and parent != os.path.dirname(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    for directory in reversed(missing):
        _make(directory, 0o777)


def _make(path: str, mode: int) -> None:
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return
    made = stat.S_IMODE(os.lstat(path).st_mode)
    if made & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(path, made | stat.S_IRWXU)
