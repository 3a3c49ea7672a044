"""Run the command line inside the test's process, and take apart what it printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from mcpstated.cli.main import program


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one command line came to."""

    exit_code: int
    out: str
    err: str

    @property
    def envelope(self) -> dict[str, Any]:
        """The JSON object on stdout, which must be all that is there."""
        envelope: dict[str, Any] = json.loads(self.out)
        assert envelope["exit_code"] == self.exit_code
        assert self.err == ""
        return envelope

    @property
    def data(self) -> dict[str, Any]:
        """The data of a command that succeeded."""
        assert self.exit_code == 0, self.out
        data: dict[str, Any] = self.envelope["data"]
        return data


class CommandLine:
    """Runs `mcpstated` with the words of a test."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *options: str) -> None:
        self._capsys = capsys
        self._options = options
        """Put before every command."""

    def __call__(self, *words: str) -> Outcome:
        self._capsys.readouterr()
        code = program.main([*self._options, *words], standalone_mode=False)
        captured = self._capsys.readouterr()
        return Outcome(code, captured.out, captured.err)
