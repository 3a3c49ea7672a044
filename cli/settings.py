"""The settings of the store that a command line means, with its `config.toml` read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mcpstated.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from mcpstated.cli.options import Invocation
    from mcpstated.protocol.settings import DaemonSettings


def settings_of(
    invocation: Invocation, flags: Mapping[str, str | float | None] | None = None
) -> DaemonSettings:
    """Return what a daemon would be told, started from this command line.

    Raises:
        InvalidInput: A flag, variable or key has a value that cannot be used, or the file cannot be read.
    """
    from mcpstated.protocol.settings import settings_from

    config = Path(invocation.paths().config)
    try:
        text = config.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidInput(f"{config} cannot be read: {reason}.", field="config.toml") from error
    return settings_from(invocation.environ(), text, flags)
