"""Answers to well-formed requests of the usual kind, without the MCP server and its libraries.

    initialize, ping, tools/list, tools/call      after a handshake
    server/discover, tools/list, tools/call       with the envelope of the modern era

What is out of the ordinary in any way is not taken, and the MCP server has the say. Loading its libraries
takes seconds, in which nobody waits for them; and to a tool call its loop has nothing to add but time. A test
asks both the same and compares the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcpstated.surface.calls import ToolCalls, read_params
from mcpstated.surface.coercion import around
from mcpstated.surface.declaration import CAPABILITIES, INSTRUCTIONS, NAME, TOOLS, declared_tools
from mcpstated.surface.eras import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
)

if TYPE_CHECKING:
    from mcpstated.protocol.limits import Limits
    from mcpstated.protocol.store import Store
    from mcpstated.surface.context import RequestContext

Params = dict[str, Any] | None

_PARAMETERS = {
    "ping": frozenset({"_meta"}),
    "server/discover": frozenset({"_meta"}),
    "tools/list": frozenset({"_meta"}),
    "tools/call": frozenset({"_meta", "name", "arguments"}),
}
_CLIENT_INFO = frozenset({"name", "version", "title", "description", "websiteUrl"})


class DirectAnswers:
    """Answers over one store.

    Args:
        store: What the tools work on.
        limits: The daemon's bounds.
        host: The name of this machine, for writer labels.
        version: What the server says it is.
    """

    def __init__(self, store: Store, *, limits: Limits, host: str, version: str) -> None:
        self._calls = ToolCalls(TOOLS, store, limits=limits, host=host)
        self._limits = around(limits)
        self._server_info = {"name": NAME, "version": version}
        self._stamp = {SERVER_INFO_KEY: self._server_info}
        self._tools = declared_tools()

    def takes(self, method: str, params: Params, *, is_modern: bool, has_handshake: bool) -> bool:
        """Tell whether this request can be answered here.

        Args:
            is_modern: Its envelope names a protocol version.
            has_handshake: The client has shaken hands before.
        """
        if method == "initialize":
            return _is_plain_handshake(params or {})
        if method not in _PARAMETERS:
            return False
        if is_modern:
            return (
                method != "ping"
                and (params or {}).keys() <= _PARAMETERS[method]
                and _is_plain_envelope((params or {}).get("_meta"))
            )
        if method == "tools/call":
            return has_handshake
        return (
            method != "server/discover"
            and (has_handshake or method == "ping")
            and (params or {}).keys() <= _PARAMETERS[method]
            and _is_plain_meta((params or {}).get("_meta", {}))
        )

    async def call_tool(self, request: RequestContext, params: Params, *, is_modern: bool) -> dict[str, Any]:
        """Return the result of a `tools/call` that `takes` has taken.

        Args:
            request: Who asks; its `client_name` is the one of the handshake.

        Raises:
            ProtocolFault: There is no such tool, or the parameters are not those of a tool call.
        """
        name, arguments = read_params(params, self._limits)
        if is_modern:
            assert params is not None
            request = replace(request, client_name=params["_meta"][CLIENT_INFO_KEY]["name"])
        result: dict[str, Any] = dict(await self._calls.answer(request, name, arguments))
        return self._stamped(result) if is_modern else result

    def answer(self, method: str, params: Params, *, is_modern: bool) -> dict[str, Any]:
        """Return the result of any other request that `takes` has taken."""
        if method == "ping":
            return {}
        if method == "initialize":
            wanted = (params or {})["protocolVersion"]
            return {
                "protocolVersion": wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
                "capabilities": CAPABILITIES,
                "serverInfo": self._server_info,
                "instructions": INSTRUCTIONS,
            }
        if method == "server/discover":
            result: dict[str, Any] = {
                "supportedVersions": list(MODERN_VERSIONS),
                "capabilities": CAPABILITIES,
                "instructions": INSTRUCTIONS,
            }
        else:
            result = {"tools": self._tools}
        return self._stamped({**result, "ttlMs": 0, "cacheScope": "private"}) if is_modern else result

    def _stamped(self, result: dict[str, Any]) -> dict[str, Any]:
        return {**result, "resultType": "complete", "_meta": self._stamp}


def _is_plain_handshake(params: Mapping[str, Any]) -> bool:
    return (
        isinstance(params.get("protocolVersion"), str)
        and isinstance(params.get("capabilities"), dict)
        and _is_plain_client(params.get("clientInfo"))
        and params.keys() <= {"protocolVersion", "capabilities", "clientInfo", "_meta"}
        and _is_plain_meta(params.get("_meta", {}))
    )


def _is_plain_envelope(meta: object) -> bool:
    return (
        _is_plain_meta(meta)
        and isinstance(meta, dict)
        and meta.get(PROTOCOL_VERSION_KEY) in MODERN_VERSIONS
        and _is_plain_client(meta.get(CLIENT_INFO_KEY))
        and isinstance(meta.get(CLIENT_CAPABILITIES_KEY), dict)
    )


def _is_plain_meta(meta: object) -> bool:
    if not isinstance(meta, dict):
        return False
    token = meta.get("progressToken", 0)
    return isinstance(token, str | int) and not isinstance(token, bool)


def _is_plain_client(info: object) -> bool:
    return (
        isinstance(info, dict)
        and {"name", "version"} <= info.keys() <= _CLIENT_INFO
        and all(isinstance(value, str) for value in info.values())
    )
