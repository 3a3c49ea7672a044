"""`state_delete`: delete a state for good."""

from __future__ import annotations

from mcpstated.surface.tool import Call, StateTool, Success, hints

_DESCRIPTION = """\
Delete a state for good. Only when the user asks for it, or agrees that its work is finished."""


async def perform(call: Call) -> Success:
    """Delete the state; later calls do not find it."""
    receipt = await call.store.delete(call.caller, call.arguments.text("handle"))
    return {"handle": receipt.info.handle, "version": receipt.info.version, "deleted": receipt.is_deleted}


TOOL = StateTool(
    name="state_delete",
    title="Delete state",
    description=_DESCRIPTION,
    parameters={"type": "object", "properties": {"handle": {"type": "string"}}, "required": ["handle"]},
    annotations=hints(is_read_only=False, is_destructive=True, is_idempotent=True),
    perform=perform,
)
