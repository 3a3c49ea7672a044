"""Where one store lives: the files in its data directory, worked out from names alone.

Nothing here touches the disk. The default directory is the one that platformdirs names for this
system when no XDG variable is set (a test holds the two together): clients hand HOME on to their
servers but rarely XDG variables, and one store must not become two. The shim imports this module, so
it must stay free of typing and dataclasses.
"""

from __future__ import annotations

import os
import sys

from mcpstated.protocol.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

APP_NAME = "mcpstated"
SOCKET_PATH_MAX_BYTES = 103 if sys.platform == "darwin" else 107
"""What fits `sun_path` with its closing zero byte."""


class Paths:
    """The files of one store.

    Everything is derived from the data directory; only the socket may be placed elsewhere.
    """

    __slots__ = ("config", "data_dir", "database", "lock", "log", "socket", "start_lock")

    def __init__(self, data_dir: str, socket: str | None = None) -> None:
        self.data_dir = data_dir
        self.database = os.path.join(data_dir, "state.db")
        self.socket = socket or _socket_for(data_dir)
        self.lock = os.path.join(data_dir, "daemon.lock")
        """Held by the daemon for its whole life; its content is information only."""
        self.start_lock = os.path.join(data_dir, "start.lock")
        """Held across probe, spawn and ready by whoever starts a daemon."""
        self.log = os.path.join(data_dir, "daemon.log")
        self.config = os.path.join(data_dir, "config.toml")


def default_data_dir(home: str, platform: str = sys.platform) -> str:
    """Return the user's data directory for a home directory."""
    if platform == "darwin":
        return os.path.join(home, "Library", "Application Support", APP_NAME)
    return os.path.join(home, ".local", "share", APP_NAME)


def paths_from_environment(environ: Mapping[str, str], *, data_dir: str | None = None) -> Paths:
    """Return the paths that MCPSTATED_DATA_DIR and MCPSTATED_SOCKET name, or the defaults.

    Args:
        data_dir: A flag that wins over the environment; empty or None means not given.

    Raises:
        InvalidInput: A path is relative, not UTF-8 or holds an unexpanded `${...}`, or the socket's is too
            long.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    directory = data_dir or environ.get("MCPSTATED_DATA_DIR") or ""
    if directory:
        directory = absolute_path(directory, field="MCPSTATED_DATA_DIR", home=home)
    else:
        directory = default_data_dir(absolute_path(home, field="HOME", home=home))
    socket = environ.get("MCPSTATED_SOCKET") or ""
    if not socket:
        return Paths(directory)
    socket = absolute_path(socket, field="MCPSTATED_SOCKET", home=home)
    if len(os.fsencode(socket)) > SOCKET_PATH_MAX_BYTES:
        raise InvalidInput(
            f"MCPSTATED_SOCKET may have at most {SOCKET_PATH_MAX_BYTES} bytes on this system.",
            field="MCPSTATED_SOCKET",
        )
    return Paths(directory, socket)


def absolute_path(text: str, *, field: str, home: str) -> str:
    """Return `text` with a leading `~` expanded.

    Raises:
        InvalidInput: It is relative or not UTF-8, or a variable in it was not expanded by whoever set it.
    """
    if "${" in text:
        raise InvalidInput(f"{field} holds {text!r}: the variable in it was never expanded.", field=field)
    if text == "~" or text.startswith("~/"):
        text = home + text[1:]
    if not os.path.isabs(text):
        raise InvalidInput(f"{field} must be an absolute path, got {text!r}.", field=field)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{field} must be a path in UTF-8, got {text!r}.", field=field) from None
    return os.path.normpath(text)


def _socket_for(data_dir: str) -> str:
    beside = os.path.join(data_dir, "daemon.sock")
    if len(os.fsencode(beside)) <= SOCKET_PATH_MAX_BYTES:
        return beside
    import hashlib  # rare, and the shim pays for every import

    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return os.path.join("/tmp", f"{APP_NAME}-{os.getuid()}-{digest}", "daemon.sock")  # noqa: S108
