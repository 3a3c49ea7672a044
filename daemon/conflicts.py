"""What a caller is told whose save lost: the newest version, and what changed since the one it read.

Bounded, because it ends up in a model's context: the changes since in full as long as they are short,
the whole document only if it is small. A model can merge from that and save again without a load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from mcpstated.daemon.changes import operations_of
from mcpstated.protocol.documents import size_of
from mcpstated.protocol.errors import StaleWrite
from mcpstated.protocol.moments import moment
from mcpstated.protocol.patches import operations_to_log

if TYPE_CHECKING:
    from mcpstated.daemon.backends.interface import StoredChange
    from mcpstated.daemon.changes import State
    from mcpstated.protocol.documents import Json

CHANGES_BUDGET_BYTES = 8 * 1024
STATE_BUDGET_BYTES = 16 * 1024
MAX_CHANGES = 64
"""Changes that are read for one answer."""


def stale_write(state: State, expected_version: int, changes: Sequence[StoredChange]) -> StaleWrite:
    """Return the error for a save that expected another version.

    Args:
        state: The newest state, durable.
        expected_version: What the caller expected; may be larger than any version there is.
        changes: What the log still has of the changes after `expected_version`, oldest first.
    """
    info = state.info
    current: dict[str, Any] = {
        "version": info.version,
        "last_writer": info.last_writer,
        "updated_at": moment(info.updated_at),
    }
    if expected_version < info.version:
        current["changes"], shown = _describe(changes)
        if shown < info.version - expected_version:
            current["changes_omitted"] = info.version - expected_version - shown
    is_whole = info.size_bytes <= STATE_BUDGET_BYTES
    if is_whole:
        current["state"] = state.document
    if expected_version > info.version:
        what = f"There is no version {expected_version} of {info.handle} yet; its newest is {info.version}."
    else:
        what = (
            f"{info.handle} is at version {info.version} now, "
            f"written by {info.last_writer or 'somebody else'}; "
            f"your save was based on version {expected_version}. Nothing was stored."
        )
    how = "current.state has the newest state" if is_whole else "Load the newest state"
    return StaleWrite(
        f"{what} {how}: put your changes into it and save again with expect_version {info.version}, "
        "or send only your changes with state_patch, which needs no version.",
        handle=info.handle,
        expected_version=expected_version,
        current=current,
    )


def _operations_of(change: StoredChange) -> list[dict[str, Any]] | None:
    try:
        operations: list[dict[str, Any]] = operations_to_log(operations_of(change))
        size_of(cast("Json", operations))  # whatever cannot be encoded cannot be shown either
    except Exception:  # damaged in whatever way: the conflict is told all the same
        return None
    return operations


def _describe(changes: Sequence[StoredChange]) -> tuple[list[dict[str, Any]], int]:
    described: list[dict[str, Any]] = []
    left = CHANGES_BUDGET_BYTES
    for change in changes:
        entry: dict[str, Any] = {"version": change.version, "writer": change.writer, "action": change.action}
        operations = _operations_of(change)
        if operations:
            entry["operations"] = operations
        elif operations is None:
            entry["note"] = "cannot be read"
        elif change.action == "save":
            entry["note"] = "replaced the whole state"
        size_bytes = size_of(entry)
        if size_bytes > left:
            entry.pop("operations", None)
            entry["note"] = "too long to show here"
            size_bytes = size_of(entry)
        if size_bytes > left:
            break
        left -= size_bytes
        described.append(entry)
    return described, len(described)
