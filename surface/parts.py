"""A document, or a part of it, within the budget that a model's context allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from mcpstated.protocol import documents
from mcpstated.protocol.outline import outline
from mcpstated.protocol.pointer import parse_path, resolve, spell_pointer

if TYPE_CHECKING:
    from mcpstated.protocol.documents import Json
    from mcpstated.protocol.store import Snapshot
    from mcpstated.surface.tool import Success

_OUTLINE_BYTES = 4_096


def part_fields(snapshot: Snapshot, *, path: str | None, max_bytes: int) -> Success:
    """Return `state`, or if that is too large `outline`, `truncated` and a hint how to get at the parts.

    Args:
        snapshot: What was read.
        path: The part that is wanted; None or empty is the whole document.
        max_bytes: Bytes of compact JSON that `state` may have.

    Raises:
        InvalidInput: There is nothing at `path`; the message names the deepest part that exists.
    """
    fields: Success = {"path": path} if path else {}
    value = resolve(snapshot.document, path) if path else snapshot.document
    size_bytes = snapshot.info.size_bytes
    if path and size_bytes > max_bytes:
        size_bytes = documents.size_of(value)
    if size_bytes <= max_bytes:
        return {**fields, "state": value}
    return {
        **fields,
        "truncated": True,
        "outline": outline_of(value, spell_pointer(parse_path(path or ""))),
        "hint": f"{'This part' if path else 'The document'} has {size_bytes} bytes, more than the "
        f"{max_bytes} allowed here. Load one of its parts with state_load and path, or all of it "
        "with a higher max_bytes. state_patch needs no load.",
    }


def outline_of(value: Json, pointer: str) -> Success:
    """Return the shape of any value, with paths that lead to its parts from the root of the document.

    Args:
        value: The document, or a part of it.
        pointer: Where the value is in the document, as a JSON Pointer.
    """
    if isinstance(value, dict):
        shape = outline(value, budget_bytes=_OUTLINE_BYTES)
        cut = 0
    else:
        # As the only member, under an empty key, the value is the first part and its parts follow.
        shape = outline({"": value}, budget_bytes=_OUTLINE_BYTES)
        del shape["keys"], shape["omitted_keys"]
        cut = 1
    parts = cast("list[dict[str, Json]]", shape["parts"])
    for part in parts:
        part["path"] = pointer + str(part["path"])[cut:]
    return {**shape}
