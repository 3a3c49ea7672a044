"""`state_save`: start a new state, or replace the document of one."""

from __future__ import annotations

from mcpstated.protocol.errors import ExpectVersionRequired, InvalidInput
from mcpstated.protocol.store import KEEP, KeepType
from mcpstated.surface.replies import receipt_fields
from mcpstated.surface.tool import REQUEST_KEY, Call, StateTool, Success, hints

_DESCRIPTION = """\
Store a JSON document that outlives this conversation and that other clients of this user can read.
Without handle: starts a new state from kind and state and answers its handle. Do this once for each piece \
of work, and keep the handle.
With handle: replaces the whole document. expect_version must be the version you last saw. To add or change \
parts use state_patch instead, which is cheaper and never conflicts.
On stale_write nothing was stored because someone else saved first: put your change on top of what is there \
now, then save with its version."""


async def perform(call: Call) -> Success:
    """Mint without a handle, save with one."""
    handle = call.arguments.find_text("handle")
    return await (_mint(call) if handle is None else _save(call, handle))


async def _mint(call: Call) -> Success:
    arguments = call.arguments
    if arguments.find_integer("expect_version"):  # 0 is how some callers say that nothing is there yet
        raise InvalidInput(
            "expect_version belongs to a handle, and no handle was given. Nothing was stored. Give the "
            "handle that you want to replace, or leave expect_version out to start a new state.",
            field="handle",
        )
    if "kind" not in arguments:
        raise InvalidInput(
            "kind is required to start a new state: one word for what it is about, such as research. "
            "To replace an existing state give its handle.",
            field="kind",
        )
    receipt = await call.store.mint(
        call.caller,
        kind=arguments.text("kind"),
        document=arguments.document("state"),
        ttl_days=arguments.find_number("ttl_days"),
        title=arguments.find_text("title") or None,
    )
    return receipt_fields(receipt)


async def _save(call: Call, handle: str) -> Success:
    arguments = call.arguments
    _check_kind_fits(arguments.find_text("kind"), handle)
    expect_version = arguments.find_integer("expect_version")
    if expect_version is None:
        newest = (await call.store.load(call.caller, handle)).info
        raise ExpectVersionRequired(
            f"To replace {newest.handle} give expect_version, the version that your document is based on.",
            handle=newest.handle,
            version=newest.version,
        )
    ttl_days: float | KeepType | None = KEEP
    if "ttl_days" in arguments:
        ttl_days = arguments.find_number("ttl_days")
    title: str | KeepType | None = KEEP
    if "title" in arguments:
        title = arguments.text("title") or None
    receipt = await call.store.save(
        call.caller,
        handle,
        document=arguments.document("state"),
        expect_version=expect_version,
        ttl_days=ttl_days,
        title=title,
    )
    return receipt_fields(receipt)


def _check_kind_fits(kind: str | None, handle: str) -> None:
    """Refuse a kind that is not the handle's: whoever sends it means another handle, or a new one.

    The kind of a handle never changes, so the one that fits is redundant and taken.
    """
    prefix = handle.rpartition("_")[0]
    if kind and prefix and kind != prefix:
        raise InvalidInput(
            f"The handle is of kind {prefix[:60]}, which cannot become {kind[:60]}. Nothing was stored. "
            "Leave kind out to replace that state, or leave handle out to start a new one.",
            field="kind",
        )


TOOL = StateTool(
    name="state_save",
    title="Save state",
    description=_DESCRIPTION,
    parameters={
        "type": "object",
        "properties": {
            "kind": {
                "type": "string",
                "description": "New state only: one word for what it is about, like research; a-z, 0-9, -",
            },
            "state": {"type": "object", "description": "The whole document"},
            "handle": {"type": "string", "description": "The state to replace; leave out to start a new one"},
            "expect_version": {
                "type": "integer",
                "description": "Required with handle: the version your document is based on",
            },
            "ttl_days": {
                "type": "number",
                "description": "Expire that many days from now; left out, a new state never expires and an "
                "existing one keeps its expiry",
            },
            "title": {
                "type": "string",
                "description": "A line that people will recognise in a list; empty removes it",
            },
            "request_key": REQUEST_KEY,
        },
        "required": ["state"],
    },
    annotations=hints(is_read_only=False, is_destructive=True),
    perform=perform,
)
