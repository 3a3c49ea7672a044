"""The demo: it shows what really happens, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mcpstated.cli.demo.failed import DemoFailed, expect
from mcpstated.cli.demo.narrator import took

DEMO = [sys.executable, "-m", "mcpstated.cli", "demo"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose temporary directory is the test's, to see what is left in it."""
    return {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "80"}


def left_behind(tmp_path: Path) -> list[str]:
    """Return the files in the temporary directory and the processes that name it."""
    listing = subprocess.run(["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True)
    processes = [line for line in listing.stdout.splitlines() if str(tmp_path) in line]
    return [path.name for path in tmp_path.iterdir()] + processes


@pytest.mark.requirement("P2", "P3", "P4")
def test_the_demo_shows_the_main_job_and_cleans_up(environ: dict[str, str], tmp_path: Path) -> None:
    """It is the first thing that a new user runs: two clients, no loss, a conflict, a killed daemon."""
    done = subprocess.run(DEMO, env=environ, capture_output=True, text=True, check=False, timeout=100)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for told in (
        "claude-desktop  state_save",
        "cursor          state_list",
        "40 of 40 appends are there",
        "stale_write: version 44",
        "merged from the error",
        "kill -9",
        "both clients went on, without an error",
        "mcpstated status",
        "2 sessions",
    ):
        assert told in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if str(tmp_path) not in line) <= 80
    dead = re.search(r"daemon (\d+) is dead", done.stdout)
    running = re.search(r"is running: pid (\d+)", done.stdout)
    assert dead is not None
    assert running is not None
    assert dead[1] != running[1]
    assert left_behind(tmp_path) == []


def test_the_demo_can_be_interrupted_and_cleans_up(environ: dict[str, str], tmp_path: Path) -> None:
    """Ctrl-C in the middle of it must not leave a daemon, a shim or a directory."""
    with subprocess.Popen(
        DEMO, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "begins a piece of research" in line:
                break
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=60)

    assert demo.returncode == 130
    assert errors == "error: Interrupted.\n"
    assert left_behind(tmp_path) == []


def test_a_claim_that_does_not_hold_ends_the_demo() -> None:
    """Every line is to come from what really happened, so what did not happen must not be told."""
    expect(True, "true is true")
    with pytest.raises(DemoFailed, match="This should hold and does not: true is false"):
        expect(False, "true is false")


def test_durations_are_told_in_milliseconds() -> None:
    """One unit in one column, so that they compare at a glance."""
    assert [took(seconds) for seconds in (0.00084, 0.0999, 0.1, 2.5)] == [
        "0.8 ms",
        "99.9 ms",
        "100 ms",
        "2500 ms",
    ]
