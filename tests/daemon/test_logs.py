"""Ring 2: the daemon's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpstated.daemon.logs import close_log, log_event, open_log

log = logging.getLogger("mcpstated.test")


@pytest.fixture(name="log_path")
def _log_path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "daemon.log"
    open_log(str(path), level="info", max_bytes=2000, files=3, to_terminal=False)
    yield path
    close_log()


def test_an_event_is_one_line_of_keys_and_values(log_path: Path) -> None:
    """People and grep read the same line."""
    log_event(log, "info", "session opened", session=7, client="Claude Code", empty="")

    (line,) = log_path.read_text().splitlines()
    assert line.endswith('info    session opened session=7 client="Claude Code" empty=""')


def test_what_a_peer_says_cannot_forge_a_line(log_path: Path) -> None:
    """Text from outside stays on its line and moves no cursor."""
    log_event(log, "info", "hello refused", reason="a\nb\x1b[2Jc\u2028d")

    (line,) = log_path.read_text().splitlines()
    assert "\\n" in line
    assert "\x1b" not in line


@pytest.mark.requirement("P6")
def test_the_log_stays_within_its_files(log_path: Path) -> None:
    """A daemon runs for months; its log must not."""
    for n in range(500):
        log_event(log, "info", "something happened", number=n)

    files = sorted(log_path.parent.iterdir())
    assert len(files) == 3
    assert all(file.stat().st_size <= 2000 for file in files)
    assert "number=499" in log_path.read_text()


def test_a_librarys_error_text_does_not_get_in(log_path: Path) -> None:
    """Libraries put values into their messages; a state must never reach the log."""
    try:
        raise ValueError("secret state")
    except ValueError:
        logging.getLogger("mcp.server").exception("handler returned an invalid result")

    text = log_path.read_text()
    assert "secret" not in text
    assert "error=ValueError" in text


@pytest.mark.requirement("P6")
def test_a_log_that_cannot_be_written_stops_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The log may lie on a full or read-only disk; the store must go on."""
    open_log(str(tmp_path / "absent" / "daemon.log"), level="info", max_bytes=100, files=2, to_terminal=False)
    try:
        log_event(log, "error", "still here")
    finally:
        close_log()

    assert "cannot be written" in capfd.readouterr().err
