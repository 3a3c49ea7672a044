"""The end of a log, read backwards and followed through its rotation."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpstated.cli import logfile
from mcpstated.cli.logfile import Follower, tail


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "daemon.log"


def test_the_last_lines_come_in_their_order(log: Path) -> None:
    """Whatever the file's size, the newest line is the last."""
    log.write_text("".join(f"line {n}\n" for n in range(1000)))

    assert tail(str(log), 3) == ["line 997", "line 998", "line 999"]


def test_lines_longer_than_a_block_are_whole(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is read in blocks from its end; no line may be torn where two blocks meet."""
    monkeypatch.setattr(logfile, "_BLOCK_BYTES", 7)
    lines = ["a" * 20, "b", "c" * 7, "", "é" * 9]
    log.write_text("\n".join(lines) + "\n")

    for count in range(1, 6):
        assert tail(str(log), count) == lines[-count:]


def test_older_files_are_read_if_the_current_one_is_short(log: Path) -> None:
    """Just after a rotation the current file is nearly empty, and that is when something has happened."""
    log.with_name("daemon.log.2").write_text("1\n2\n")
    log.with_name("daemon.log.1").write_text("3\n4\n")
    log.write_text("5\n")

    assert tail(str(log), 4) == ["2", "3", "4", "5"]
    assert tail(str(log), 100) == ["1", "2", "3", "4", "5"]


def test_a_log_that_is_not_there_has_no_lines(log: Path) -> None:
    """Before the first start there is nothing to show, and that is no error."""
    assert tail(str(log), 10) == []


def test_no_lines_are_asked_for_and_none_come(log: Path) -> None:
    """`-n 0 --follow` shows only what is new."""
    log.write_text("1\n")

    assert tail(str(log), 0) == []


def test_following_gives_whole_lines_only(log: Path) -> None:
    """A line that is being written must not come in two parts."""
    log.write_text("old\n")
    follower = Follower(str(log))
    with log.open("a") as file:
        file.write("new\nhal")
        file.flush()
        assert follower.new_lines() == ["new"]
        file.write("f\n")
    assert follower.new_lines() == ["half"]
    follower.close()


def test_following_goes_on_in_the_next_file(log: Path) -> None:
    """A rotation in between loses nothing, neither at the old file's end nor at the new one's beginning."""
    log.write_text("old\n")
    follower = Follower(str(log))
    with log.open("a") as file:
        file.write("last of the old\n")
    log.rename(log.with_name("daemon.log.1"))
    log.write_text("first of the new\n")

    assert follower.new_lines() == ["last of the old", "first of the new"]
    follower.close()


def test_following_waits_for_a_file_that_is_not_there_yet(log: Path) -> None:
    """`logs --follow` may be started before the daemon."""
    follower = Follower(str(log))
    assert follower.new_lines() == []

    log.write_text("first\n")

    assert follower.new_lines() == ["first"]
    follower.close()


def test_bytes_that_are_no_text_are_shown_by_their_number(log: Path) -> None:
    """A library that writes to the daemon's stderr may write anything."""
    log.write_bytes(b"a\xffb\n")

    assert tail(str(log), 1) == ["a\\xffb"]
