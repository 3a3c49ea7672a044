"""What a self-test has seen so far, in numbers; bounded, however long it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcpstated.cli.selftest.history import Call
from mcpstated.cli.selftest.problems import Problem

MAX_PROBLEMS = 1_000
_EXPECTED = ("stale_write", "handle_not_found")


@dataclass(slots=True)
class Tally:
    """Counted as it happens; the clients, the killer and the auditor all write into it."""

    calls: int = 0
    writes: int = 0
    """Calls that were acknowledged as a new version."""
    reads: int = 0
    conflicts: int = 0
    """Saves that lost to another client, as they should."""
    not_found: int = 0
    """Calls on a handle that was deleted, as they should."""
    failed: int = 0
    """Calls that were refused without such a reason."""
    unknown: int = 0
    """Calls whose outcome their client never heard."""
    slowest_seconds: float = 0.0
    slowest_operation: str = ""
    daemon_kills: int = 0
    client_kills: int = 0
    handles: int = 0
    """Handles whose history was checked."""
    versions: int = 0
    """Versions of these, each read back."""
    lost: int = 0
    doubled: int = 0
    problems: list[Problem] = field(default_factory=list)
    """At most `MAX_PROBLEMS`."""

    def add_call(self, call: Call) -> None:
        """Count one call of a client."""
        self.calls += 1
        self.writes += call.is_change
        self.reads += call.is_done and not call.is_write
        self.conflicts += call.code == "stale_write"
        self.not_found += call.code == "handle_not_found"
        self.unknown += call.is_unknown
        self.failed += bool(call.code) and not call.is_unknown and call.code not in _EXPECTED
        if not call.is_unknown and call.ended - call.started > self.slowest_seconds:
            self.slowest_seconds = call.ended - call.started
            self.slowest_operation = call.operation

    def add_problems(self, problems: list[Problem]) -> None:
        """Count what is wrong, and keep it as far as there is room."""
        self.lost += sum(problem.kind == "lost" for problem in problems)
        self.doubled += sum(problem.kind == "doubled" for problem in problems)
        self.problems += problems[: MAX_PROBLEMS - len(self.problems)]
