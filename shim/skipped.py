"""Answering a line that was too long to be taken, under its own id: a client waits for that one only.

Imported when there is such a line, of which only the two ends are known.
"""

from __future__ import annotations

import json

from mcpstated.protocol.salvage import salvage

_INVALID_REQUEST = -32600


def answer_to_skipped(head: bytes, tail: bytes, max_line_bytes: int) -> bytes:
    """Return the line that refuses a line of which these are the ends."""
    text = f"A line of more than {max_line_bytes} bytes was skipped: that is the most that can be taken."
    error = {"code": _INVALID_REQUEST, "message": text}
    id_, _method = salvage(head, tail)
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": error}, separators=(",", ":")).encode("ascii")
