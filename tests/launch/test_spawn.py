"""Ring 4: the process that a daemon is started as has nothing of whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpstated.launch import DaemonLink, DaemonNotReady
from mcpstated.protocol.errors import DaemonUnavailable
from mcpstated.protocol.paths import Paths
from mcpstated.spawn import daemon_command, daemon_environment, spawn_daemon, wait_until_ready
from support.shim_process import shim_environment, shim_process

linux = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are read from /proc")
Ensure = Callable[..., DaemonLink]
Starts = Callable[[], list[dict[str, Any]]]
ANY_PATH = {"PATH": "/usr/bin:/bin"}


def program(paths: Paths, script: str) -> str:
    """Write a script that stands in for the interpreter, and return its path."""
    python = Path(paths.data_dir) / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    return str(python)


@linux
@pytest.mark.requirement("C19")
def test_it_has_no_descriptor_of_its_starter(ensure: Ensure, starts: Starts, paths: Paths) -> None:
    """C19: an inherited pipe would keep whoever reads it waiting for as long as the daemon lives."""
    leaking = [fd for pair in (os.pipe(), os.pipe()) for fd in pair]
    for fd in leaking:
        os.set_inheritable(fd, True)
    try:
        ensure()
    finally:
        for fd in leaking:
            os.close(fd)
    descriptors = starts()[0]["descriptors"]
    assert {fd: descriptors[fd] for fd in ("0", "1", "2")} == {
        "0": os.devnull,
        "1": paths.log,
        "2": paths.log,
    }
    assert sorted(descriptors) == ["0", "1", "2", "3"]
    assert descriptors["3"].startswith("pipe:")


@pytest.mark.requirement("C19")
def test_it_has_a_session_of_its_own_and_belongs_to_nobody(ensure: Ensure, starts: Starts) -> None:
    """C19: it outlives the terminal, the client and the client's process group."""
    ensure()
    (start,) = starts()
    assert start["sid"] != os.getsid(0)
    assert start["pgid"] == start["sid"]
    assert start["sid"] != start["pid"], "a session leader could get a terminal"
    assert start["ppid"] != os.getpid()
    assert (start["cwd"], start["umask"]) == ("/", 0o077)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.requirement("C19")
def test_its_signals_are_the_default_ones(ensure: Ensure, starts: Starts) -> None:
    """C19: a client that blocks SIGTERM or ignores SIGHUP must not make a daemon that cannot be ended."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
    ignored = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGINT)}
    try:
        link = ensure()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in ignored.items():
            signal.signal(number, handler)
    (start,) = starts()
    assert (start["blocked"], start["ignored"]) == ([], [])
    os.kill(start["pid"], signal.SIGTERM)
    link.sock.settimeout(10)
    assert link.sock.recv(1) == b"", "SIGTERM ended it"


@pytest.mark.requirement("C19")
async def test_whoever_reads_the_shims_output_sees_its_end(
    data_dir: Path, command: Callable[[str], list[str]], starts: Starts
) -> None:
    """C19: `printf ... | mcpstated shim 2>&1 | cat` returns although the daemon that it started lives on."""
    code = (
        "import os, sys; os.dup2(1, 2); from mcpstated.shim.main import run_shim; "
        "sys.exit(run_shim(os.environ, command=sys.argv[1:]))"
    )
    environ = shim_environment(data_dir)
    del environ["MCPSTATED_NO_SPAWN"]
    with trio.fail_after(30):
        argv = [sys.executable, "-c", code, *command("serve")]
        async with shim_process(data_dir, command=argv, environ=environ) as shim:
            await shim.say(b'{"echo": true}')
            await shim.end_input()
            assert await shim.stdout.rest() == b'{"echo": true}\n'
            assert await shim.exit_code() == 0
    os.kill(starts()[0]["pid"], 0)


def test_it_is_told_its_store_and_where_to_report(ensure: Ensure, starts: Starts, paths: Paths) -> None:
    """The options are the ones that the command `mcpstated daemon` knows."""
    ensure()
    assert starts()[0]["arguments"][-4:] == ["--data-dir", paths.data_dir, "--ready-fd", "3"]


def test_only_the_part_of_the_environment_for_everyone_is_passed_on() -> None:
    """C03: who starts the daemon is an accident; its user, writer, secrets and paths must not stick."""
    environ = {
        "HOME": "/home/ann",
        "PATH": "/bin",
        "LC_ALL": "C",
        "TZ": "UTC",
        "PYTHONPATH": "/project",
        "XDG_DATA_HOME": "/else",
        "OPENAI_API_KEY": "secret",
        "LD_PRELOAD": "x.so",
        "MCPSTATED_IDLE_SECONDS": "5",
        "MCPSTATED_USER": "ann",
        "MCPSTATED_WRITER": "editor",
        "MCPSTATED_NO_SPAWN": "",
        "MCPSTATED_SOCKET": "/elsewhere",
        "MCPSTATE_BACKEND": "sqlite:///x.db",
        "MCPSTATE_USER": "ann",
        "MCPSTATE_WRITER": "editor",
    }
    kept = {"HOME", "PATH", "LC_ALL", "TZ", "MCPSTATED_IDLE_SECONDS", "MCPSTATE_BACKEND"}
    assert daemon_environment(environ, Paths("/d")) == {name: environ[name] for name in kept}


def test_a_socket_elsewhere_is_passed_on() -> None:
    """The daemon must listen where this client connects, however the client was told."""
    assert daemon_environment({}, Paths("/d", "/run/s.sock")) == {"MCPSTATED_SOCKET": "/run/s.sock"}


@linux
@pytest.mark.requirement("P6")
def test_a_log_that_cannot_be_opened_stops_nothing(ensure: Ensure, starts: Starts, paths: Paths) -> None:
    """C22: a daemon without a log is better than none."""
    Path(paths.log).mkdir()
    ensure()
    assert {starts()[0]["descriptors"][fd] for fd in "012"} == {os.devnull}


@linux
def test_a_log_that_is_a_pipe_without_a_reader_does_not_hang_the_start(ensure: Ensure, paths: Paths) -> None:
    """P6: opening it would wait for a reader for ever."""
    os.mkfifo(paths.log)
    ensure()


def test_a_command_that_cannot_be_run_is_named(paths: Paths) -> None:
    """An installation that was removed is told as such, at once."""
    deadline = time.monotonic() + 20
    reading = spawn_daemon(paths, environ={}, deadline=deadline, command=["/nonexistent/python"])
    reason = wait_until_ready(reading, deadline=deadline)
    assert reason == "/nonexistent/python cannot be run: No such file or directory"


def test_an_interpreter_that_cannot_be_run_is_named(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step before that fails in words as well."""
    broken = program(paths, "")
    Path(broken).write_text("#!/nonexistent/interpreter\n")
    monkeypatch.setattr(sys, "executable", broken)
    with pytest.raises(DaemonUnavailable, match=f"{broken} "):
        spawn_daemon(paths, environ={}, deadline=time.monotonic() + 20, command=["x"])


@pytest.mark.requirement("P6")
@pytest.mark.usefixtures("no_leaks")
def test_a_start_that_hangs_before_the_daemon_is_ended_at_the_deadline(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6: the script in between has a bound too; what hangs there does not stay behind."""
    monkeypatch.setattr(sys, "executable", program(paths, "exec sleep 1000"))
    with pytest.raises(DaemonNotReady, match="still being started"):
        spawn_daemon(paths, environ=ANY_PATH, deadline=time.monotonic() + 0.2, command=["x"])


@pytest.mark.usefixtures("no_leaks")
def test_a_search_that_is_ended_leaves_no_start_behind(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shim whose client is gone ends its search, wherever that is."""

    def give_up() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "executable", program(paths, "exec sleep 1000"))
    with pytest.raises(KeyboardInterrupt):
        spawn_daemon(paths, environ=ANY_PATH, deadline=time.monotonic() + 20, command=["x"], on_wait=give_up)


@pytest.mark.requirement("P2")
def test_a_start_that_is_killed_is_a_daemon_that_died_without_a_word(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2: only a reason that was given is one; whoever was killed may be started again."""
    monkeypatch.setattr(sys, "executable", program(paths, "kill -9 $$"))
    deadline = time.monotonic() + 20
    reading = spawn_daemon(paths, environ=ANY_PATH, deadline=deadline, command=["x"])
    assert wait_until_ready(reading, deadline=deadline) == ""


def test_half_a_word_is_no_reason() -> None:
    """P2: a daemon that is killed while it reports has not reported."""
    reading, writing = os.pipe()
    os.write(writing, b"failed: the dis")
    os.close(writing)
    assert wait_until_ready(reading, deadline=time.monotonic() + 20) == ""


def test_the_command_runs_the_installed_program_from_anywhere() -> None:
    """Isolation flags must not hide this very package, however it was installed."""
    command, python_path = daemon_command()
    environ = {"PYTHONPATH": python_path} if python_path else {}
    assert command[-3:] == ["-m", "mcpstated.cli", "daemon"]
    output = subprocess.check_output([*command[:-1], "--version"], cwd="/", env=environ, timeout=60)
    assert b"mcpstated" in output
