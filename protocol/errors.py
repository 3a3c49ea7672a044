"""The one list of errors that a caller of the store can meet.

Every error has a stable snake_case `code`, a message written as an instruction, and `details`: the
fields that a caller needs to repair the call. Above it sit the engine, the surface and the clients;
it imports nothing, so that the shim can afford it. `to_payload` and `from_payload` are the only two
places where an error crosses the wire.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class McpStateError(Exception):
    """Something that the store refused, said in words that a model can act on."""

    code: str = "internal_error"

    def __init__(self, message: str, /, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_payload(self) -> dict[str, object]:
        """Return the error as it goes over the wire: code, message and details in one flat object."""
        return {"code": self.code, "message": self.message, **self.details}


class InvalidInput(McpStateError, ValueError):
    """An argument is missing, of the wrong type or out of range. Details: `field`."""

    code = "invalid_input"


class ExpectVersionRequired(McpStateError):
    """A save did not say which version it was based on. Details: `handle`, `version`."""

    code = "expect_version_required"


class HandleNotFound(McpStateError):
    """There is no such handle for this user. Details: `handle`."""

    code = "handle_not_found"


class HandleExpired(McpStateError):
    """The handle's time to live has passed. Details: `handle`, `expired_at`, `ttl_days`."""

    code = "handle_expired"


class HandleExists(McpStateError):
    """A handle of that name is there already, perhaps in the trash; nothing was done. Details: `handle`."""

    code = "handle_exists"


class StaleWrite(McpStateError):
    """Somebody else saved first. Details: `handle`, `expected_version`, `current`."""

    code = "stale_write"


class PatchError(McpStateError):
    """A patch operation does not fit the document. Details: `index`, `op`, `path`, `reason`."""

    code = "patch_error"


class StateTooLarge(McpStateError):
    """The document would pass the size limit. Details: `size_bytes`, `limit_bytes`."""

    code = "state_too_large"


class QuotaExceeded(McpStateError):
    """The user holds as many handles as is allowed. Details: `held`, `limit`."""

    code = "quota_exceeded"


class HistoryCompacted(McpStateError):
    """That version has been folded away. Details: `requested`, `oldest`."""

    code = "history_compacted"


class StorageFull(McpStateError):
    """The disk is full and nothing was stored; reads still work."""

    code = "storage_full"


class DaemonUnavailable(McpStateError):
    """No daemon could be reached or started in time. Details: `hint`."""

    code = "daemon_unavailable"


class OutcomeUnknown(McpStateError):
    """The call was sent, but no answer came: it may have been applied. Details: `handle`, `hint`."""

    code = "outcome_unknown"


class StoreReplaced(McpStateError):
    """The store is not the one that this client used before; nothing was done. Details: `hint`."""

    code = "store_replaced"


class Unauthenticated(McpStateError):
    """Nobody vouches for who is calling."""

    code = "unauthenticated"


class BackendError(McpStateError):
    """The storage failed. The reason is in the daemon's log, never in the message."""

    code = "backend_error"


class InternalError(McpStateError):
    """A fault of ours. The reason is in the daemon's log, never in the message."""

    code = "internal_error"


ERRORS: tuple[type[McpStateError], ...] = (
    InvalidInput,
    ExpectVersionRequired,
    HandleNotFound,
    HandleExpired,
    HandleExists,
    StaleWrite,
    PatchError,
    StateTooLarge,
    QuotaExceeded,
    HistoryCompacted,
    StorageFull,
    DaemonUnavailable,
    OutcomeUnknown,
    StoreReplaced,
    Unauthenticated,
    BackendError,
    InternalError,
)
_BY_CODE = {error.code: error for error in ERRORS}


def to_payload(error: BaseException) -> dict[str, object]:
    """Return the wire form of an exception; one that is not ours becomes `internal_error` without text."""
    if isinstance(error, McpStateError):
        return error.to_payload()
    return InternalError("The daemon met an unexpected fault; its log has the details.").to_payload()


def from_payload(payload: Mapping[str, object]) -> McpStateError:
    """Return the exception that `to_payload` described; an unknown code becomes `InternalError`."""
    details = {key: value for key, value in payload.items() if key not in ("code", "message")}
    error = _BY_CODE.get(str(payload.get("code")), InternalError)
    return error(str(payload.get("message", "")), **details)
