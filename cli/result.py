"""What a command returns: data for programs, blocks for people, errors for both.

Commands never print. `main` hands the result to `render` (people) or `envelope` (`--json`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcpstated.cli.blocks import Block
from mcpstated.cli.exit_codes import ExitCode


@dataclass(frozen=True, slots=True)
class Problem:
    """One error, in a word for programs and a sentence for people."""

    code: str
    """One of `protocol.errors`, or `usage`, `daemon_not_running`, `version_skew`, `interrupted`."""
    message: str
    details: Mapping[str, object] = field(default_factory=dict)
    hint: str = ""
    """What to do about it."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one command."""

    command: str
    exit_code: ExitCode = ExitCode.OK
    data: Mapping[str, object] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    errors: tuple[Problem, ...] = ()
