"""JSON-RPC lines as real clients write them: bytes to a classified message and back.

Stricter than JSON about what MCP fixes (one object a line, ids that are strings or integers), more
lenient where clients differ (byte order mark, carriage return). The relay above routes what comes
out; nothing here knows a method but by name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeAlias

from mcpstated.protocol.salvage import ENDS_BYTES, salvage

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32602, -32603

RequestId: TypeAlias = str | int

_BOM = b"\xef\xbb\xbf"
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_LINE_BREAKS = {0x2028: "\\u2028", 0x2029: "\\u2029", 0x85: "\\u0085"}


@dataclass(frozen=True, slots=True)
class Call:
    """A request: it will be answered."""

    id: RequestId
    method: str
    params: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification: it will not be answered."""

    method: str
    params: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Reply:
    """The client's answer to a request of ours."""

    id: RequestId | None


@dataclass(frozen=True, slots=True)
class Blank:
    """A line with nothing on it."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that is no message; `id` and `method` are what could be saved of it."""

    id: RequestId | None
    code: int
    reason: str
    method: str = ""


Envelope: TypeAlias = Call | Notice | Reply | Blank | Malformed


def read_line(line: bytes) -> Envelope:
    """Return what one line of a client says. Never raises for any bytes."""
    line = line.removeprefix(_BOM)
    line = line.strip()
    if not line:
        return Blank()
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return Malformed(None, PARSE_ERROR, "The line is not UTF-8.")
    try:
        message = json.loads(text)
    except RecursionError:
        return unread(line, "The message is nested too deeply to be read.")
    except ValueError as error:
        if "Exceeds the limit" in str(error):
            return unread(line, "The message holds an integer of too many digits.")
        return Malformed(None, PARSE_ERROR, "The line is not JSON.")
    return _classify(message)


def unread(line: bytes, reason: str) -> Malformed:
    """Return what becomes of a line that is not parsed: refused, under its own id if that can be found."""
    id_, method = salvage(line[:ENDS_BYTES], line[-ENDS_BYTES:])
    return Malformed(id_, INVALID_PARAMS, reason, method)


def write_line(message: dict[str, Any]) -> bytes:
    """Return `message` as one line without its newline, whichever line splitter the client uses.

    Characters that some splitters take for a line end are escaped, and so is what UTF-8 cannot carry.
    """
    text = _ENCODER.encode(message)
    if not text.isascii():
        text = text.translate(_LINE_BREAKS)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":")).encode("ascii")


def error_line(id: RequestId | None, code: int, text: str) -> bytes:  # noqa: A002
    """Return the line that answers `id` with a JSON-RPC error."""
    return write_line({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})


def _is_id(value: object) -> bool:
    return type(value) is str or type(value) is int


def _classify(message: Any) -> Envelope:
    if not isinstance(message, dict):
        what = "A batch is not accepted" if isinstance(message, list) else "A message must be an object"
        return Malformed(None, INVALID_REQUEST, f"{what}: send one JSON-RPC object a line.")
    has_id = "id" in message
    id_ = message.get("id")
    usable_id: RequestId | None = id_ if _is_id(id_) else None
    if "method" not in message:
        if "result" in message or "error" in message:
            return Reply(usable_id)
        return Malformed(usable_id, INVALID_REQUEST, "The message has neither a method nor a result.")
    method = message["method"]
    params = message.get("params")
    if message.get("jsonrpc") != "2.0":
        return Malformed(usable_id, INVALID_REQUEST, 'The message lacks "jsonrpc": "2.0".')
    if type(method) is not str:
        return Malformed(usable_id, INVALID_REQUEST, "The method must be a string.")
    if has_id and usable_id is None:
        return Malformed(None, INVALID_REQUEST, "The id of a request must be a string or an integer.")
    if params is not None and not isinstance(params, dict):
        return Malformed(usable_id, INVALID_PARAMS, "The params must be an object.")
    if usable_id is None:
        return Notice(method, params)
    return Call(usable_id, method, params)
