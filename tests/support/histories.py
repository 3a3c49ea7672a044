"""Histories of one handle, written by hand: what some clients saw, call by call."""

from __future__ import annotations

import math
from typing import Any

from mcpstated.cli.selftest.documents import size_of
from mcpstated.cli.selftest.history import Call, Operation

HANDLE = "selftest_abcdefgh"


def document(*items: str, **more: Any) -> dict[str, Any]:
    """Return a document of the self-test with these items."""
    return {"items": list(items), "marks": {}, "saves": 0, **more}


class History:
    """The calls on one handle; each takes from a second to the next one unless it says otherwise."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._now = 0.0
        self.add("mint", {"state": document()}, {"version": 1})

    def add(
        self,
        operation: Operation,
        arguments: dict[str, Any],
        reply: dict[str, Any] | None,
        at: tuple[float, float] | None = None,
        *,
        code: str = "",
    ) -> None:
        """Add a call with the reply that it got.

        Args:
            reply: The fields of a success, or of an error if there is a `code`; None for no reply.
            at: When it was sent and answered; the next second if not given.
        """
        started, ended = at or (self._now, self._now + 0.5)
        self._now = math.floor(max(self._now, started)) + 1.0
        content: dict[str, Any] | None = None
        if reply is None:
            ended = math.inf
        elif code:
            content = {"ok": False, "error": {"code": code, "message": "", **reply}}
        else:
            content = {"ok": True, "handle": HANDLE, **reply}
        self.calls.append(
            Call("client-1", operation, HANDLE, {"handle": HANDLE, **arguments}, started, ended, content)
        )

    def append(self, item: str, version: int | None, at: tuple[float, float] | None = None) -> None:
        """Append an item; without a version the outcome is unknown."""
        operation = {"op": "append", "path": "items", "value": item}
        self.add("patch", {"ops": [operation]}, None if version is None else {"version": version}, at)

    def load(self, version: int, *items: str, at: tuple[float, float] | None = None, **more: Any) -> None:
        """Load a version with these items, and with its size as it should be."""
        state = document(*items, **more)
        self.add("load", {}, {"version": version, "state": state, "size_bytes": size_of(state)}, at)

    def save(self, expected: int, version: int, *items: str, **more: Any) -> None:
        """Save these items over one version as another."""
        arguments = {"state": document(*items, **more), "expect_version": expected}
        self.add("save", arguments, {"version": version})

    def conflict(self, expected: int, version: int, **told: Any) -> None:
        """Save over one version, and lose to another."""
        arguments = {"state": document(), "expect_version": expected}
        self.add("save", arguments, {"current": {"version": version, **told}}, code="stale_write")

    def delete(self, version: int | None) -> None:
        """Delete the handle."""
        self.add("delete", {}, None if version is None else {"version": version, "deleted": True})

    def not_found(self, operation: Operation = "load", at: tuple[float, float] | None = None) -> None:
        """Find no handle."""
        self.add(operation, {}, {}, at, code="handle_not_found")
