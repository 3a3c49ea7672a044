"""What only happens in a terminal or goes on until Ctrl-C: the live screen, following the log."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

MCPSTATED = [sys.executable, "-m", "mcpstated.cli"]
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


def test_the_live_screen_leaves_the_terminal_as_it_found_it(data_dir: Path) -> None:
    """It draws on a screen of its own; Ctrl-C goes back and prints the last state, with its exit code."""
    controller, terminal = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    command = [*MCPSTATED, "--data-dir", str(data_dir), "status", "--watch"]
    with subprocess.Popen(command, env=environ, stdin=terminal, stdout=terminal, stderr=terminal) as watching:
        os.close(terminal)
        shown = ""
        while "Ctrl-C ends this." not in shown:
            shown += os.read(controller, 65536).decode()
        watching.send_signal(signal.SIGINT)
        try:
            while part := os.read(controller, 65536):
                shown += part.decode()
        except OSError:
            pass  # how the end of a terminal reads on Linux
        watching.wait(timeout=30)
    os.close(controller)

    before, _, after = shown.rpartition(LEAVE_SCREEN)
    assert ENTER_SCREEN in before
    assert "No daemon is running." in before
    assert "No daemon is running." in after
    assert watching.returncode == 3


def test_following_the_log_shows_what_is_added_until_ctrl_c(data_dir: Path) -> None:
    """That is its end, so it is no failure."""
    log = data_dir / "daemon.log"
    log.write_text("old\nlast\n")
    command = [*MCPSTATED, "--data-dir", str(data_dir), "logs", "-n", "1", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "last\n"
        with log.open("a") as file:
            file.write("new \x1b[2J\n")
        assert following.stdout.readline() == "new \\x1b[2J\n"
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=30)

    assert (following.returncode, errors) == (0, "")
