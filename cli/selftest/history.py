"""What a client saw: one record for each call that it made, with nothing that only a daemon knows.

Times are seconds of one monotonic clock that all clients share. A call whose outcome nobody knows, because
its client was killed or it was told so, never ends: it may have been applied at any time, or never.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Operation = Literal["mint", "save", "patch", "touch", "delete", "undelete", "load"]
Fields = Mapping[str, Any]
"""A JSON object, as it was sent or as it came."""

NO_ANSWER = "no_answer"
"""The code of a call that its client gave up waiting for; no daemon sends it."""
_UNKNOWN_CODES = ("outcome_unknown", NO_ANSWER)


@dataclass(frozen=True, slots=True)
class Call:
    """One call on one handle, from the moment before it was sent to the moment after it was answered."""

    client: str
    operation: Operation
    handle: str
    """Empty for a mint that was not answered."""
    arguments: Fields
    """What the tool was given. A load with a `version` asks for the past."""
    started: float
    ended: float
    """Infinite if the outcome is unknown."""
    reply: Fields | None
    """The structured content; None if the client did not live to see one."""

    @property
    def code(self) -> str:
        """The code of the error; empty for a success and for no reply."""
        return "" if self.reply is None or self.reply["ok"] else str(self.reply["error"]["code"])

    @property
    def is_done(self) -> bool:
        """True if it was acknowledged."""
        return self.reply is not None and bool(self.reply["ok"])

    @property
    def is_unknown(self) -> bool:
        """True if it may have been applied or not."""
        return self.reply is None or self.code in _UNKNOWN_CODES

    @property
    def is_write(self) -> bool:
        """True if it was to change something."""
        return self.operation != "load"

    @property
    def is_change(self) -> bool:
        """True if it was acknowledged as a new version."""
        return self.is_write and self.is_done and bool(self.fields.get("changed", True))

    @property
    def is_past(self) -> bool:
        """True if it read a version that need not be the newest."""
        return self.operation == "load" and "version" in self.arguments

    @property
    def fields(self) -> Fields:
        """What a success says of a version, or a conflict of the version that it met; else empty."""
        if self.reply is None:
            return {}
        if self.is_done:
            return self.reply
        current: Fields = self.reply["error"].get("current", {}) if self.code == "stale_write" else {}
        return current

    @property
    def version(self) -> int | None:
        """The version that it made, read or lost to; None if it saw none."""
        return self.fields.get("version")

    @property
    def appended(self) -> tuple[str, ...]:
        """The items that it was to append; each is there at most once in all the world."""
        if self.operation != "patch":
            return ()
        return tuple(op["value"] for op in self.arguments["ops"] if op["op"] == "append")

    def words(self) -> str:
        """Return it as people read it: `client-2 save at 3.204 s`."""
        return f"{self.client}'s {self.operation} at {self.started:.3f} s"


def to_line(call: Call) -> str:
    """Return a call as one line of JSON, without its end."""
    record = {
        "client": call.client,
        "operation": call.operation,
        "handle": call.handle,
        "started": round(call.started, 6),
        "ended": None if math.isinf(call.ended) else round(call.ended, 6),
        "arguments": call.arguments,
        "reply": call.reply,
    }
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))
