"""`state_delete`: delete a state; a person can bring it back for some days."""

from __future__ import annotations

from mcpstated.protocol.moments import moment
from mcpstated.surface.tool import REQUEST_KEY, Call, StateTool, Success, hints

_DESCRIPTION = """\
Delete a state. Only when the user asks for it, or agrees that its work is finished. You cannot undo it; \
the user can, until the time that the reply names."""

_HINT = "Until {until} the user, and nobody else, can bring it back with: mcpstated trash restore {handle}"


async def perform(call: Call) -> Success:
    """Delete the state; later calls do not find it."""
    receipt = await call.store.delete(call.caller, call.arguments.text("handle"))
    handle, until = receipt.info.handle, moment(receipt.trash_until)
    fields: Success = {
        "handle": handle,
        "version": receipt.info.version,
        "deleted": receipt.is_deleted,
        "trash_until": until,
    }
    if until is not None:
        fields["hint"] = _HINT.format(until=until, handle=handle)
    return fields


TOOL = StateTool(
    name="state_delete",
    title="Delete state",
    description=_DESCRIPTION,
    parameters={
        "type": "object",
        "properties": {"handle": {"type": "string"}, "request_key": REQUEST_KEY},
        "required": ["handle"],
    },
    annotations=hints(is_read_only=False, is_destructive=True, is_idempotent=True),
    perform=perform,
)
