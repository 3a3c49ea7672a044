"""What work on a store's files is refused for, as errors that the command line knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcpstated.protocol.errors import BackendError, InvalidInput


@contextmanager
def refusals_as_errors(path: Path) -> Iterator[None]:
    """Turn what the block is refused for into an error with the reason.

    Raises:
        InvalidInput: There is no such file.
        BackendError: The store was refused.
    """
    from mcpstated.daemon.backends.interface import StoreRefused

    if not path.exists():
        raise InvalidInput(f"There is no file {path}.", field="file")
    try:
        yield
    except StoreRefused as error:
        raise BackendError(str(error)) from error
