"""The envelope is a contract with scripts: its keys, its version and its numbers."""

from __future__ import annotations

import json

from mcpstated.cli.envelope import RESULT_VERSION, envelope, envelope_text
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.result import Problem, Result


def test_the_envelope_has_these_keys_and_no_others() -> None:
    """A script that reads version 1 must go on reading it; this test fails before the script does."""
    assert list(envelope(Result("list"))) == [
        "result_version",
        "command",
        "status",
        "exit_code",
        "data",
        "errors",
    ]
    assert RESULT_VERSION == 1


def test_a_success_says_ok_and_has_no_errors() -> None:
    """`status` and `exit_code` must never disagree."""
    assert envelope(Result("list", data={"total": 0})) == {
        "result_version": 1,
        "command": "list",
        "status": "ok",
        "exit_code": 0,
        "data": {"total": 0},
        "errors": [],
    }


def test_a_failure_names_code_message_hint_and_details() -> None:
    """A program decides by the code and the details; the sentence and the hint are for its user."""
    problem = Problem("stale_write", "Somebody else saved first.", {"handle": "a_1"}, hint="Load it.")

    found = envelope(Result("show", ExitCode.FAILED, errors=(problem,)))

    assert found["status"] == "error"
    assert found["exit_code"] == 1
    assert found["errors"] == [
        {
            "code": "stale_write",
            "message": "Somebody else saved first.",
            "handle": "a_1",
            "hint": "Load it.",
        }
    ]


def test_numbers_of_a_state_keep_every_digit_and_their_type() -> None:
    """What a document says is what `--json` says: integers above 64 bits, whole floats, minus zero."""
    text = envelope_text(Result("show", data={"state": {"n": 12345678901234567890123, "f": 1.0, "z": -0.0}}))

    assert '"n": 12345678901234567890123' in text
    assert '"f": 1.0' in text
    assert '"z": -0.0' in text


def test_nothing_that_a_terminal_obeys_is_in_the_text() -> None:
    """JSON escapes C0 only; a C1 control or a direction override in a state would reach the terminal."""
    state = {"a": "\x1b[2J\x9b2J\x7f", "b": "\u202egnp.exe", "c": "\U000e0041", "d": "é 漢 👩\u200d🔬"}

    text = envelope_text(Result("show", data={"state": state}))

    assert not any(c in text for c in "\x1b\x9b\x7f\u202e\U000e0041")
    assert "é 漢 👩\u200d🔬" in text
    assert json.loads(text)["data"]["state"] == state


def test_a_path_that_is_no_unicode_can_still_be_told() -> None:
    """File names are bytes; those that are no UTF-8 are held as lone surrogates, which UTF-8 cannot carry."""
    text = envelope_text(Result("paths", data={"path": "/tmp/\udcff"}))

    assert json.loads(text.encode())["data"]["path"] == "/tmp/\udcff"
