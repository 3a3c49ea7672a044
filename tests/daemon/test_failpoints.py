"""Failpoints: what may be armed, what an armed one does, and that each of them is somewhere in the code."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpstated.daemon import failpoints
from mcpstated.daemon.failpoints import FAILPOINTS, MOMENTS, PLACES, TRANSACTIONS, failpoint
from mcpstated.protocol.errors import InvalidInput
from support.layout import ROOT

NAME = "append.before_commit"


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    failpoints.arm("")


def test_a_failpoint_that_is_not_armed_does_nothing() -> None:
    """They stand in the hottest paths of every daemon."""
    failpoint(NAME)
    failpoints.arm("append.after_commit=error")
    failpoint(NAME)
    failpoint("append", "before_commit")


def test_an_error_is_raised_the_time_that_was_asked_for_and_once() -> None:
    """A test that wants the third commit must not get the first, and what comes after goes on."""
    failpoints.arm(f"{NAME}=error@3, fold.after_begin=error")
    failpoint(NAME)
    failpoint("append", "before_commit")
    with pytest.raises(OSError, match="error") as caught:
        failpoint("append", "before_commit")
    assert caught.value.errno == errno.EIO
    failpoint(NAME)
    with pytest.raises(OSError, match="error"):
        failpoint("fold.after_begin")


@pytest.mark.parametrize(("action", "expected"), [("kill", -signal.SIGKILL), ("stop", -signal.SIGTERM)])
def test_a_process_dies_or_stands_still_exactly_there(action: str, expected: int) -> None:
    """A process that stands still goes on with SIGCONT."""
    program = (
        "from mcpstated.daemon import failpoints\n"
        f"failpoints.arm('{NAME}={action}')\n"
        "print('before', flush=True)\n"
        f"failpoints.failpoint('{NAME}')\n"
        "print('after', flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "before\n"
        if action == "stop":
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            os.kill(process.pid, signal.SIGCONT)
            assert process.stdout.readline() == "after\n"
            process.terminate()
        assert process.wait(30) == expected


def test_a_thread_stands_still_exactly_there_too() -> None:
    """Transactions run in worker threads; a stop that another thread must take first would come too late."""
    program = (
        "import os, threading\n"
        "from mcpstated.daemon import failpoints\n"
        f"failpoints.arm('{NAME}=stop')\n"
        "begin = threading.Event()\n"
        "def work():\n"
        "    begin.wait()\n"
        f"    failpoints.failpoint('{NAME}')\n"
        "    os.write(1, b'after')\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "if hasattr(os, 'sched_setaffinity'):  # the other thread hardly gets to run\n"
        "    for id in (threading.get_native_id(), thread.native_id):\n"
        "        os.sched_setaffinity(id, {min(os.sched_getaffinity(0))})\n"
        "    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)\n"
        "begin.set()\n"
        "thread.join()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        os.set_blocking(process.stdout.fileno(), False)
        before = process.stdout.read()
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(30) == 0
        assert not before
        assert process.stdout.read() == b"after"


@pytest.mark.parametrize(
    "text",
    ["append=kill", f"{NAME}=explode", f"{NAME}=kill@0", f"{NAME}=kill@", NAME],
)
def test_what_cannot_be_armed_refuses_with_a_sentence(text: str) -> None:
    """A test that arms a place that was renamed must fail, not pass for nothing."""
    with pytest.raises(InvalidInput, match="MCPSTATED_FAILPOINTS") as caught:
        failpoints.arm(text)
    assert caught.value.details["field"] == "MCPSTATED_FAILPOINTS"


def test_a_daemon_with_an_unknown_failpoint_does_not_start(tmp_path: Path) -> None:
    """The sentence reaches whoever started it."""
    environ = {**os.environ, "MCPSTATED_DATA_DIR": str(tmp_path), "MCPSTATED_FAILPOINTS": "no.such=kill"}
    done = subprocess.run(
        [sys.executable, "-m", "mcpstated.cli", "daemon"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "no.such" in done.stderr
    assert not (tmp_path / "state.db").exists()


def test_every_failpoint_is_in_the_code_and_every_one_in_the_code_has_a_sentence() -> None:
    """The list is what the tests go by."""
    called: set[str] = set()
    for path in [*(ROOT / "daemon").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        text = path.read_text("utf-8")
        if path.name == "failpoints.py":
            continue
        called.update(re.findall(r"failpoint\(\s*\"([a-z_]+\.[a-z_]+)\"", text))
        for step in re.findall(r"step=\"([a-z_]+)\"", text):
            called.update(f"{step}.{moment}" for moment in MOMENTS)
    assert called == set(FAILPOINTS)
    assert not {*PLACES} & {f"{step}.{moment}" for step in TRANSACTIONS for moment in MOMENTS}
    assert all(re.fullmatch(r"[A-Z].+\.", sentence) for sentence in FAILPOINTS.values())
