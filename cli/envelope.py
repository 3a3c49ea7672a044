"""The machine-readable form of a result: one JSON object, whose shape is versioned.

    {"result_version": 1, "command": "list", "status": "ok", "exit_code": 0, "data": {...}, "errors": []}

`status` is `ok` when `exit_code` is 0, else `error`. Every error has a stable `code` and a `message`. Names
that end in `_at` are ISO 8601 times in UTC. Keys are added without a new version; one that changes its
meaning or goes away raises it.
"""

from __future__ import annotations

import json

from mcpstated.cli.escape import json_visible
from mcpstated.cli.result import Problem, Result

RESULT_VERSION = 1


def envelope(result: Result) -> dict[str, object]:
    """Return the envelope of a result."""
    return {
        "result_version": RESULT_VERSION,
        "command": result.command,
        "status": "ok" if result.exit_code == 0 else "error",
        "exit_code": int(result.exit_code),
        "data": result.data,
        "errors": [_error(problem) for problem in result.errors],
    }


def envelope_text(result: Result) -> str:
    """Return the envelope as JSON text, indented, ending in a newline.

    Integers of a state keep all their digits, and 1.0 stays 1.0: nothing passes through a float that
    was none.
    """
    return json_visible(json.dumps(envelope(result), ensure_ascii=False, indent=2)) + "\n"


def _error(problem: Problem) -> dict[str, object]:
    fields: dict[str, object] = {"code": problem.code, "message": problem.message, **problem.details}
    if problem.hint:
        fields["hint"] = problem.hint
    return fields
