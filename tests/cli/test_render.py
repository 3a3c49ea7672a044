"""What people see: plain text in a pipe, nothing of a state taken as markup, tables that fit."""

from __future__ import annotations

import json

import pytest

from mcpstated.cli.blocks import Block, Column, Fields, JsonText, Line, Rows, Verbatim
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.render import fitting_columns, render
from mcpstated.cli.result import Problem, Result

HOSTILE = "[bold red]x[/] :smile: \x1b[31m\x07"
SHOWN = "[bold red]x[/] :smile: \\x1b[31m\\x07"


def printed(capsys: pytest.CaptureFixture[str], *blocks: Block) -> str:
    render(Result("show", blocks=blocks), as_json=False)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "block",
    [
        Line(HOSTILE),
        Line(HOSTILE, "bad"),
        Fields((("title", HOSTILE),)),
        Fields(((HOSTILE, "value"),), title=HOSTILE),
        Rows((Column("TITLE", grows=True),), ((HOSTILE,),)),
        Rows((Column("TITLE"),), (), empty=HOSTILE),
        Verbatim(HOSTILE),
    ],
    ids=lambda block: type(block).__name__,
)
def test_text_in_a_block_is_neither_markup_nor_obeyed(
    capsys: pytest.CaptureFixture[str], block: Block
) -> None:
    """Whatever stored the text may want the reader's terminal to do something."""
    out = printed(capsys, block)

    assert SHOWN in out
    assert "\x1b" not in out


def test_a_json_text_is_printed_as_json_with_long_lines_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """It can be copied into a file and read by a program."""
    state = {"text": "word " * 200 + HOSTILE, "n": [1, 2.0]}

    out = printed(capsys, JsonText(json.dumps(state, indent=2)))

    assert json.loads(out) == state
    assert "\x1b" not in out


def test_lines_of_a_log_keep_their_tabs_and_are_not_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    """What is searched for in a log must not be torn apart by the width of a screen."""
    text = "a\tb" + "x" * 500

    assert printed(capsys, Verbatim(text)) == f"{text}\n"


def test_a_pipe_gets_no_colour_and_no_trailing_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    """Both only get into the way of grep and diff."""
    rows = Rows((Column("A"), Column("B", grows=True)), (("1", "x"), ("2", "yy")))

    out = printed(capsys, Line("good", "good"), rows)

    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_columns_of_the_highest_rank_go_first_where_space_is_short() -> None:
    """On 40 columns a list is still a list of handles; on 200 it says everything."""
    columns = (
        Column("HANDLE"),
        Column("SIZE", rank=1),
        Column("WRITER", rank=2),
        Column("TITLE", grows=True),
    )
    rows = Rows(columns, (("research_k3v9x2mq", "12.5 KiB", "laptop/claude-code", "t" * 100),))

    assert fitting_columns(rows, 200) == [0, 1, 2, 3]
    assert fitting_columns(rows, 60) == [0, 1, 3]
    assert fitting_columns(rows, 44) == [0, 3]
    assert fitting_columns(rows, 10) == [0, 3]


def test_errors_go_to_stderr_with_their_hint(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout is for results, so that a pipe never carries an error as data."""
    problem = Problem("failed", f"It did not work: {HOSTILE}.", hint="Try this.")

    render(Result("show", ExitCode.FAILED, errors=(problem,)), as_json=False)

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error: It did not work: {SHOWN}.\nTry this.\n"


def test_a_terminal_gets_our_colours_and_no_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where colours are on, those that a state asks for are still text."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")

    out = printed(capsys, Line(HOSTILE, "good"), JsonText(json.dumps({"a": HOSTILE})))

    assert out.startswith("\x1b[32m")
    assert SHOWN in out
    assert "\x1b[31m" not in out
    assert "\\u001b[31m" in out


def test_no_color_is_respected(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """https://no-color.org: a user who set it means every program."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")

    assert "\x1b[32m" not in printed(capsys, Line("good", "good"))
