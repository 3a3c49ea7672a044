"""The settings of the store that a command line means, with its `config.toml` read.

The file is read with a bound and without waiting: a pipe or a device in its place is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mcpstated.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from mcpstated.cli.options import Invocation
    from mcpstated.protocol.settings import DaemonSettings

MAX_CONFIG_BYTES = 1024 * 1024
"""The largest `config.toml` that is read."""


def settings_of(
    invocation: Invocation, flags: Mapping[str, str | float | None] | None = None
) -> DaemonSettings:
    """Return what a daemon would be told, started from this command line.

    Raises:
        InvalidInput: A flag, variable or key has a value that cannot be used, or the file cannot be read.
    """
    from mcpstated.protocol.settings import settings_from

    config = invocation.paths().config
    text = _text_of(config)
    try:
        return settings_from(invocation.environ(), text, flags)
    except InvalidInput as error:
        if text is not None and "hint" not in error.details:
            hint = f"Settings come from the command line, the environment, and {config}."
            raise InvalidInput(error.message, **{**error.details, "hint": hint}) from error
        raise


def _text_of(path: str) -> str | None:
    """Return the text of the file, or None if there is none."""
    try:
        data = _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(f"{path} cannot be read: {error.strerror}.") from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _unusable(f"{path} cannot be read: it is not UTF-8 text.") from error


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _unusable(f"{path} cannot be read: it is not a regular file.")
        with os.fdopen(fd, "rb", closefd=False) as stream:
            data = stream.read(MAX_CONFIG_BYTES + 1)
    finally:
        os.close(fd)
    if len(data) > MAX_CONFIG_BYTES:
        raise _unusable(f"{path} cannot be read: it has more than {MAX_CONFIG_BYTES} bytes.")
    return data


def _unusable(message: str) -> InvalidInput:
    return InvalidInput(message, field="config.toml")
