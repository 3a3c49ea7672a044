"""What the writes of the self-test do to a document: a second opinion, independent of the daemon's.

It knows two operations, and paths that go by keys alone. Documents are never changed in place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcpstated.cli.selftest.history import Call

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Version:
    """What a handle is at one version."""

    document: Document
    is_deleted: bool = False


class Impossible(Exception):
    """A write cannot have been applied to that version."""


def next_version(before: Version | None, write: Call) -> Version:
    """Return what a write makes of a handle.

    Args:
        before: None for one that is not there yet.

    Raises:
        Impossible: It cannot be applied there.
    """
    if before is None:
        if write.operation != "mint":
            raise Impossible(f"the first change is a {write.operation}")
        return Version(write.arguments["state"])
    if before.is_deleted != (write.operation == "undelete") or write.operation == "mint":
        raise Impossible(
            f"a {write.operation} {'after the deletion' if before.is_deleted else 'of a handle'}"
        )
    match write.operation:
        case "delete":
            return Version(before.document, is_deleted=True)
        case "save":
            return Version(write.arguments["state"])
        case "patch":
            document = before.document
            for operation in write.arguments["ops"]:
                document = _patched(document, operation)
            return Version(document)
        case _:
            return Version(before.document)


def part_at(document: Document, path: str) -> Any:
    """Return the value at a dotted path.

    Raises:
        KeyError: There is none.
    """
    value: Any = document
    for key in path.split(".") if path else ():
        value = value[key]
    return value


def size_of(document: Document) -> int:
    """Return the bytes of a document as compact JSON."""
    return len(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())


def _patched(document: Document, operation: Mapping[str, Any]) -> Document:
    keys = operation["path"].split(".") if operation["path"] else []
    target = part_at(document, operation["path"])
    changed: Any
    if operation["op"] == "append":
        changed = [*target, operation["value"]]
    else:
        changed = {**target, operation["key"]: operation["value"]}
    for depth in range(len(keys) - 1, -1, -1):
        changed = {**part_at(document, ".".join(keys[:depth])), keys[depth]: changed}
    result: Document = changed
    return result
