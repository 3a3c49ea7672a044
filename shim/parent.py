"""Noticing that the client is gone although something still holds standard input open.

Clients are often wrapped (`sh -c`, npx, a sandbox), and what the wrapper passed on can outlive it. On
Linux a pidfd of the parent wakes the shim; elsewhere, and where that is forbidden, it looks every few
seconds whether it was handed over to another parent.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_SECONDS = 2.0


class ParentWatch:
    """Watches the process that started this one, from when it is made."""

    __slots__ = ("_parent", "fd", "look_seconds")

    def __init__(self) -> None:
        self._parent = os.getppid()
        self.fd: int | None = None
        """Becomes readable when the parent ends, where the system has such a thing."""
        self.look_seconds: float | None = None
        """How often `is_gone` must be asked because `fd` does not tell; None means never."""
        if self._parent > 1:  # 1 is whoever adopts orphans, 0 somebody outside of this container
            self.fd = _pidfd_of(self._parent)
            if self.fd is None:
                self.look_seconds = _LOOK_SECONDS

    def is_gone(self) -> bool:
        """True if the parent has ended."""
        return self._parent > 1 and os.getppid() != self._parent

    def close(self) -> None:
        """Stop watching: `fd` would stay readable for ever."""
        if self.fd is not None:
            os.close(self.fd)
        self.fd = self.look_seconds = None


def _pidfd_of(pid: int) -> int | None:
    pidfd_open: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    try:
        return pidfd_open(pid) if pidfd_open is not None else None
    except OSError:  # an old kernel or a sandbox
        return None
