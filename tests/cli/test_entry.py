"""How the process of a command ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

LATE = "import atexit, sys; atexit.register(print, 'taken down in order'); sys.argv[0] = 'mcpstated'\n"
PROGRAM = LATE + "from mcpstated.cli.entry import main; sys.exit(main())"


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_command_ends_in_order(data_dir: Path) -> None:
    """Only the daemon has something that is slow to free; everything else ends as Python programs do."""
    with started("paths", "--data-dir", str(data_dir)) as process:
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.endswith("taken down in order\n")


@pytest.mark.parametrize("before", [(), ("--data-dir", "{}")])
def test_the_daemon_ends_at_once_with_its_exit_code(data_dir: Path, before: tuple[str, ...]) -> None:
    """Whoever waits for its end waits for the disk only; wherever its options stand on the command line."""
    options = [word.format(data_dir) for word in before]
    after = [] if before else ["--data-dir", str(data_dir)]
    with started(*options, "daemon", *after) as process:
        assert process.stderr is not None
        assert "daemon started" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "daemon stopped" in errors
