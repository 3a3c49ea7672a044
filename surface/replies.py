"""How a success reads: the names that users of mcpstate know, times that people and programs read.

The same object goes out twice, as structured content and as compact JSON text, because half of the
clients show their model only one of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcpstated.protocol import documents
from mcpstated.protocol.moments import moment

if TYPE_CHECKING:
    from mcpstated.protocol.store import HandleInfo, Receipt
    from mcpstated.surface.tool import Success

ToolResult = dict[str, Any]
"""The result of `tools/call` as the wire has it."""


def metadata(info: HandleInfo) -> Success:
    """Return what is known of a handle without its document; an absent title is left out."""
    fields: Success = {"handle": info.handle, "version": info.version, "kind": info.kind}
    if info.title is not None:
        fields["title"] = info.title
    fields["created_at"] = moment(info.created_at)
    fields["updated_at"] = moment(info.updated_at)
    fields["expires_at"] = moment(info.expires_at)
    fields["last_writer"] = info.last_writer
    fields["size_bytes"] = info.size_bytes
    return fields


def receipt_fields(receipt: Receipt) -> Success:
    """Return what a write answers; `changed` is false if it had no effect."""
    return {**metadata(receipt.info), "changed": receipt.is_changed}


def success(fields: Success, ignored: tuple[str, ...] = ()) -> ToolResult:
    """Return the tool result of a call that succeeded.

    Args:
        fields: What the tool answered. Parts of a document are shared, not copied.
        ignored: Names of arguments that the tool does not know.
    """
    structured: Success = {"ok": True, **fields}
    if ignored:
        structured["ignored_arguments"] = list(ignored)
    return result(structured, [documents.dump(structured)], is_error=False)  # type: ignore[arg-type]


def result(structured: Success, texts: list[str], *, is_error: bool) -> ToolResult:
    """Return a tool result with these text blocks."""
    return {
        "content": [{"type": "text", "text": text} for text in texts],
        "structuredContent": structured,
        "isError": is_error,
    }
