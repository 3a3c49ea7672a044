"""`state_touch`: set when a state expires."""

from __future__ import annotations

from mcpstated.surface.replies import receipt_fields
from mcpstated.surface.tool import REQUEST_KEY, Call, StateTool, Success, hints

_DESCRIPTION = """\
Set when a state expires, without changing its document. Do it before it expires: an expired state cannot be \
brought back."""


async def perform(call: Call) -> Success:
    """Let the state expire later, or never."""
    arguments = call.arguments
    receipt = await call.store.touch(
        call.caller, arguments.text("handle"), ttl_days=arguments.find_number("ttl_days")
    )
    return receipt_fields(receipt)


TOOL = StateTool(
    name="state_touch",
    title="Set expiry",
    description=_DESCRIPTION,
    parameters={
        "type": "object",
        "properties": {
            "handle": {"type": "string"},
            "ttl_days": {"type": "number", "description": "Days from now; leave out for never"},
            "request_key": REQUEST_KEY,
        },
        "required": ["handle"],
    },
    annotations=hints(is_read_only=False),
    perform=perform,
)
