"""The commands around real processes: start, stop, restart, skew, and a daemon that does not answer."""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from mcpstated.cli.commands import status as status_command
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.gone import wait_gone
from mcpstated.protocol.paths import Paths
from support.command_line import CommandLine

MCPSTATED = [sys.executable, "-m", "mcpstated.cli"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], data_dir: Path) -> CommandLine:
    return CommandLine(capsys, "--data-dir", str(data_dir))


def is_gone(pid: int) -> bool:
    return trio.run(functools.partial(wait_gone, pid, timeout_seconds=5))


def test_a_daemon_is_started_replaced_and_stopped(run: CommandLine) -> None:
    """Each command returns when what it says is true: the old process is gone, the new one serves."""
    listed = run("list", "--json")
    first = run("status", "--json").data["daemon"]
    restarted = run("restart", "--json").data
    second = run("status", "--json").data["daemon"]
    stopped = run("stop", "--json").data

    assert listed.data["handles"] == []
    assert restarted["stopped"] == {"pid": first["pid"]}
    assert restarted["daemon"]["pid"] == second["pid"] != first["pid"]
    assert restarted["daemon"]["instance"] == second["instance"] != first["instance"]
    assert stopped == {"stopped": {"pid": second["pid"]}}
    assert is_gone(first["pid"])
    assert is_gone(second["pid"])
    assert run("status").exit_code == ExitCode.DAEMON_NOT_RUNNING


def test_restart_starts_a_daemon_where_none_runs(run: CommandLine) -> None:
    """It is the command for `make it run with this version`, whatever ran before."""
    outcome = run("restart")

    assert outcome.exit_code == 0
    assert outcome.out.startswith("No daemon was running.\n")
    assert run("status").exit_code == 0


def test_the_daemon_in_the_foreground_ends_with_ctrl_c(data_dir: Path) -> None:
    """Who watches it in a terminal ends it the usual way, and that is an orderly stop."""
    with subprocess.Popen(
        [*MCPSTATED, "daemon", "--data-dir", str(data_dir), "--log-level", "info"],
        stderr=subprocess.PIPE,
        text=True,
    ) as daemon:
        assert daemon.stderr is not None
        assert "daemon started" in daemon.stderr.readline()
        daemon.send_signal(signal.SIGINT)
        _, rest = daemon.communicate(timeout=30)

    assert daemon.returncode == 0
    assert "daemon stopped" in rest


def test_a_daemon_that_cannot_read_its_settings_says_so_to_whoever_started_it(data_dir: Path) -> None:
    """A client that starts a daemon waits at a pipe; without the reason it could only time out."""
    (data_dir / "config.toml").write_text("[daemon]\nlog_level = 'loud'\n")
    reading, writing = os.pipe()

    done = subprocess.run(
        [*MCPSTATED, "daemon", "--data-dir", str(data_dir), "--ready-fd", str(writing)],
        pass_fds=[writing],
        capture_output=True,
        check=False,
        timeout=30,
    )
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()

    assert done.returncode == ExitCode.USAGE
    assert said.startswith("failed: log_level must be one of")
    assert said.count("\n") == 1


OLD_DAEMON = """
import socket, sys
from mcpstated.protocol.connection import Connection
from mcpstated.protocol.messages import SKEW, Goodbye
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    while True:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(Connection("daemon").send(Goodbye(SKEW, "You speak 1, this daemon speaks 9.")))
            peer.shutdown(socket.SHUT_WR)
            peer.recv(65536)
"""


@contextmanager
def old_daemon(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """Run what refuses every client for its version, as a daemon of another age would."""
    path = Paths(str(data_dir)).socket
    with subprocess.Popen(
        [sys.executable, "-c", OLD_DAEMON, path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_daemon_of_another_version_is_told_by_exit_code_4(run: CommandLine, data_dir: Path) -> None:
    """It runs, and cannot be talked to; the sentence is the daemon's, the remedy the command's."""
    with old_daemon(data_dir):
        for words in (["status"], ["list"]):
            outcome = run(*words, "--json")
            assert outcome.exit_code == ExitCode.VERSION_SKEW
            assert outcome.envelope["errors"] == [
                {
                    "code": "version_skew",
                    "message": "You speak 1, this daemon speaks 9.",
                    "hint": "Run: mcpstated restart",
                }
            ]


def test_a_daemon_of_another_version_can_be_replaced(run: CommandLine, data_dir: Path) -> None:
    """`restart` is what every skew error recommends, so it must work without a common version."""
    with old_daemon(data_dir) as old:
        restarted = run("restart", "--json").data

        assert restarted["stopped"] == {"pid": old.pid}
        assert old.wait(timeout=10) == -signal.SIGTERM
    assert run("status", "--json").data["daemon"]["pid"] == restarted["daemon"]["pid"]


def test_a_daemon_that_does_not_answer_is_not_called_absent(
    run: CommandLine, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow is not dead: no advice to start another, and an exit code of its own."""
    monkeypatch.setattr(status_command, "CONNECT_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(Paths(str(data_dir)).socket)
        listener.listen()
        for_people, for_programs = run("status"), run("status", "--json")

    assert for_people.exit_code == for_programs.exit_code == ExitCode.FAILED
    assert "did not greet" in for_people.out
    assert "restart" not in for_people.out
    assert for_programs.envelope["errors"][0]["code"] == "daemon_unavailable"


def test_ctrl_c_while_waiting_for_the_daemon_ends_quietly(data_dir: Path) -> None:
    """Whoever gives up waiting gets his prompt back at once, and no traceback."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(Paths(str(data_dir)).socket)
        listener.listen()
        command = [*MCPSTATED, "--data-dir", str(data_dir), "list"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1)  # it has said hello, and nobody will answer
                waiting.send_signal(signal.SIGINT)
                out, errors = waiting.communicate(timeout=30)

    assert (waiting.returncode, out, errors.strip()) == (ExitCode.INTERRUPTED, "", "error: Interrupted.")


async def test_the_end_of_a_process_is_noticed_even_if_nobody_collects_it() -> None:
    """In a container the first process may collect no orphans; a zombie holds neither socket nor lock."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert await wait_gone(process.pid, timeout_seconds=0.1) is False
        assert process.stdin is not None
        process.stdin.close()
        with trio.fail_after(20):
            assert await wait_gone(process.pid, timeout_seconds=20) is True  # not waited for yet
        process.wait()
        assert await wait_gone(process.pid, timeout_seconds=1) is True
