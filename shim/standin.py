"""Answering in the daemon's place when none can be had: the one time that the shim reads JSON.

Imported only then. A tool call gets a result that a model can read; any other request a JSON-RPC
error; what wants no answer gets none. Whether a call that had already been forwarded was applied
cannot be known here, and the answer says so.
"""

from __future__ import annotations

import json

from mcpstated.protocol.errors import DaemonUnavailable, McpStateError, OutcomeUnknown

_PARSE_ERROR, _INVALID_REQUEST, _UNAVAILABLE = -32700, -32600, -32000
_BOM = b"\xef\xbb\xbf"
_MODERN_META_KEY = "io.modelcontextprotocol/protocolVersion"
"""A request that carries this in its `_meta` expects a result that says that it is complete."""


def answers_without_daemon(line: bytes, reason: McpStateError, *, was_forwarded: bool) -> list[bytes]:
    """Return the lines, mostly one, that answer a client's line although there is no daemon.

    Args:
        line: What the client sent.
        reason: Why there is no daemon; the caller of a tool is told.
        was_forwarded: Some daemon had the line, and may have applied it.
    """
    try:
        message = json.loads(line.removeprefix(_BOM))
    except RecursionError:
        return [_error(None, _INVALID_REQUEST, "The message is nested too deeply to be read.")]
    except ValueError:
        return [_error(None, _PARSE_ERROR, "The line is not JSON.")]
    if not isinstance(message, dict):
        return [_error(None, _INVALID_REQUEST, "Send one JSON-RPC object a line.")]
    method, id_ = message.get("method"), message.get("id")
    if not isinstance(method, str) or "id" not in message:
        return []
    if type(id_) is not str and type(id_) is not int:
        return [_error(None, _INVALID_REQUEST, "The id of a request must be a string or an integer.")]
    params = message.get("params")
    if method == "tools/call":
        return [_line({"id": id_, "result": _tool_result(params, _said(params, reason, was_forwarded))})]
    return [_error(id_, _UNAVAILABLE, _text(DaemonUnavailable(reason.message, **_hint(reason))))]


def answer_to_call(line: bytes, reason: McpStateError, *, was_forwarded: bool) -> bytes | None:
    """Return the line that refuses a tool call for `reason`; None if it is not a tool call.

    Args:
        was_forwarded: The daemon of the store that was there before had it, and may have applied it.
    """
    try:
        message = json.loads(line.removeprefix(_BOM))
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("method") != "tools/call":
        return None
    id_, params = message.get("id"), message.get("params")
    if type(id_) is not str and type(id_) is not int:
        return None
    if was_forwarded:
        reason = OutcomeUnknown(
            f"The call may or may not have been applied to the store that was there before. {reason.message}",
            **reason.details,
        )
    return _line({"id": id_, "result": _tool_result(params, reason)})


def _said(params: object, reason: McpStateError, was_forwarded: bool) -> McpStateError:
    if not was_forwarded:
        return DaemonUnavailable(f"Nothing was done: {reason.message}", **_hint(reason))
    arguments = params.get("arguments") if isinstance(params, dict) else None
    handle = arguments.get("handle") if isinstance(arguments, dict) else None
    return OutcomeUnknown(
        f"The call may or may not have been applied: the daemon ended before it answered. {reason.message}",
        **({"handle": handle} if isinstance(handle, str) else {}),
        hint="Once the daemon is back, load or list the state before you try again.",
    )


def _hint(reason: McpStateError) -> dict[str, str]:
    return {"hint": str(reason.details.get("hint") or "Run `mcpstated status` to see what is wrong.")}


def _text(error: McpStateError) -> str:
    return f"{error.message} {error.details['hint']}"


def _tool_result(params: object, error: McpStateError) -> dict[str, object]:
    result: dict[str, object] = {
        "content": [{"type": "text", "text": _text(error)}],
        "structuredContent": {"ok": False, "error": error.to_payload()},
        "isError": True,
    }
    meta = params.get("_meta") if isinstance(params, dict) else None
    if isinstance(meta, dict) and _MODERN_META_KEY in meta:
        result["resultType"] = "complete"
    return result


def _error(id_: str | int | None, code: int, text: str) -> bytes:
    return _line({"id": id_, "error": {"code": code, "message": text}})


def _line(message: dict[str, object]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode("ascii")
