"""Directories that only their owner may enter: made with mode 0700, refused if they are anything else."""

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
        parent = os.path.dirname(path)
        if not os.path.isdir(parent):
            os.makedirs(parent, exist_ok=True)
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
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
