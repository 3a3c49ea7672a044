"""From the parameters of `tools/call` to the store and back.

    parameters -> read_params -> coercion -> tool -> store
                                              |
                           tool result <- replies or failures

Nothing but a protocol fault leaves it as an exception: everything else is for the model to read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcpstated.protocol import documents
from mcpstated.protocol.errors import McpStateError, Unauthenticated
from mcpstated.protocol.request_keys import request_key
from mcpstated.protocol.store import Caller
from mcpstated.protocol.wording import quote
from mcpstated.surface.coercion import Coercion
from mcpstated.surface.context import RequestContext
from mcpstated.surface.failures import failure
from mcpstated.surface.faults import INVALID_PARAMS, ProtocolFault
from mcpstated.surface.replies import success
from mcpstated.surface.tool import Call
from mcpstated.surface.writer import writer_of

if TYPE_CHECKING:
    from mcpstated.protocol.limits import Limits
    from mcpstated.protocol.store import Store
    from mcpstated.surface.replies import ToolResult
    from mcpstated.surface.tool import StateTool

log = logging.getLogger("mcpstated.surface")


class ToolCalls:
    """Answers every `tools/call` of one surface.

    Args:
        tools: What may be called.
        store: What the tools work on.
        limits: The daemon's bounds.
        host: The name of this machine, for writer labels.
    """

    def __init__(self, tools: Iterable[StateTool], store: Store, *, limits: Limits, host: str) -> None:
        self._store = store
        self._limits = limits
        self._host = host
        self._tools = {tool.name: (tool.perform, Coercion(tool.parameters, limits)) for tool in tools}

    async def answer(
        self, request: RequestContext | None, name: str, arguments: Mapping[str, object]
    ) -> ToolResult:
        """Return the result of one call.

        Args:
            request: Who asks; None if nobody vouches for that.
            name: The tool.
            arguments: As the client sent them.

        Raises:
            ProtocolFault: There is no such tool.
        """
        entry = self._tools.get(name)
        if entry is None:
            known = ", ".join(self._tools)
            raise ProtocolFault(INVALID_PARAMS, f"Unknown tool {quote(name)}; there are: {known}.")
        perform, coerce = entry
        ignored: tuple[str, ...] = ()
        try:
            caller = self._caller_of(request)
            coerced = coerce(arguments)
            ignored = coerced.ignored
            key = coerced.find_text("request_key")
            if key is not None:
                keyed = request_key(key, name, coerced.without("request_key"), self._limits)
                caller = replace(caller, request=keyed)
            return success(await perform(Call(self._store, self._limits, caller, coerced)), ignored)
        except McpStateError as error:
            return failure(error, ignored)
        except Exception as error:  # a fault of ours: the caller gets a code, the log gets the text
            log.exception("tool call failed", extra={"fields": {"tool": name}})
            return failure(error, ignored)

    def _caller_of(self, request: RequestContext | None) -> Caller:
        if request is None or not request.user:
            raise Unauthenticated("Nobody vouches for who is calling, so no state can be reached.")
        writer = writer_of(
            request.client_name,
            wanted=request.writer,
            host=self._host,
            max_chars=self._limits.max_writer_chars,
        )
        return Caller(user=request.user, writer=writer, token=request.token)


def read_params(params: Mapping[str, Any] | None, limits: Limits) -> tuple[str, Mapping[str, object]]:
    """Return the tool's name and the arguments of a `tools/call`.

    Missing and null arguments are none; an object that comes as JSON text is decoded, once.

    Raises:
        ProtocolFault: The parameters are not those of a tool call.
    """
    params = params or {}
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str):
        raise ProtocolFault(INVALID_PARAMS, "name must be the name of a tool.")
    if isinstance(arguments, str):
        try:
            arguments = (
                documents.parse(arguments, field="arguments", limits=limits) if arguments.strip() else {}
            )
        except McpStateError as error:
            raise ProtocolFault(INVALID_PARAMS, error.message) from None
    if arguments is None:
        return name, {}
    if not isinstance(arguments, dict):
        raise ProtocolFault(INVALID_PARAMS, "arguments must be an object.")
    return name, arguments
