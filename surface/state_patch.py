"""`state_patch`: change parts of a document; never refused because somebody else changed it too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpstated.protocol.errors import McpStateError
from mcpstated.protocol.patches import operations_from_wire
from mcpstated.surface.parts import part_fields
from mcpstated.surface.replies import receipt_fields
from mcpstated.surface.tool import REQUEST_KEY, Call, StateTool, Success, hints

if TYPE_CHECKING:
    from mcpstated.protocol.store import HandleInfo, Touched

_DESCRIPTION = """\
Change parts of a state. Prefer this to state_save: it needs no version, it never conflicts, and the patches \
of several sessions all land. All operations are applied, in order, or none.
The reply tells the new version and what was touched, not the document."""

_OPS = """\
{"op":"append","path":"sources","value":1} adds an item to a list. \
{"op":"set_key","path":"","key":"done","value":true} sets a key of an object. \
{"op":"del_key","path":"","key":"draft"} removes one. \
{"op":"merge","path":"profile","mapping":{"a":1}} sets several. \
path names the list or object, which must exist: "" is the whole document, profile.tags goes by dotted keys, \
/sources/0/tags is a JSON Pointer for list items and for keys with dots"""


async def perform(call: Call) -> Success:
    """Apply all operations or none to the newest document."""
    arguments = call.arguments
    operations = operations_from_wire(arguments.items("ops"))
    receipt = await call.store.patch(call.caller, arguments.text("handle"), operations)
    fields = {**receipt_fields(receipt), "touched": [_touched_fields(touched) for touched in receipt.touched]}
    if arguments.flag("return_state"):
        fields.update(await _state_after(call, receipt.info))
    return fields


async def _state_after(call: Call, info: HandleInfo) -> Success:
    """Return the document of the version that the reply names, whatever others have made of it since.

    So the reply is the same if the call has to be answered again. The patch is durable by now, so a failure
    to read must not look like a failure to write.
    """
    try:
        snapshot = await call.store.load(call.caller, info.handle, version=info.version)
    except McpStateError as error:
        return {
            "hint": f"The patch was applied, but the document could not be read afterwards: {error.message}"
        }
    return part_fields(snapshot, path=None, max_bytes=call.limits.reply_budget_bytes)


def _touched_fields(touched: Touched) -> Success:
    fields: Success = {"op": touched.op, "path": touched.path}
    if touched.length is not None:
        fields["length"] = touched.length
    return fields


TOOL = StateTool(
    name="state_patch",
    title="Patch state",
    description=_DESCRIPTION,
    parameters={
        "type": "object",
        "properties": {
            "handle": {"type": "string"},
            "ops": {
                "type": "array",
                "description": _OPS,
                "items": {
                    "type": "object",
                    "properties": {
                        "op": {"type": "string", "enum": ["append", "set_key", "del_key", "merge"]},
                        "path": {"type": "string"},
                        "key": {"type": "string"},
                        "value": {"description": "Any JSON value"},
                        "mapping": {"type": "object"},
                    },
                    "required": ["op"],
                },
            },
            "return_state": {"type": "boolean", "description": "Answer the document too"},
            "request_key": REQUEST_KEY,
        },
        "required": ["handle", "ops"],
    },
    annotations=hints(is_read_only=False, is_destructive=True),
    perform=perform,
)
