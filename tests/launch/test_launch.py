"""Ring 4: finding a daemon or starting one, and the ways in which that goes wrong."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mcpstated.launch import DaemonLink, DaemonNotReady, DaemonNotRunning, ensure_daemon
from mcpstated.locks import StartLock
from mcpstated.protocol.errors import DaemonUnavailable
from mcpstated.protocol.messages import Hello
from mcpstated.protocol.paths import Paths

if TYPE_CHECKING:
    from conftest import Greeter

READY_DAEMON = Path(__file__).parent.parent / "support" / "ready_daemon.py"
Ensure = Callable[..., DaemonLink]
Starts = Callable[[], list[dict[str, Any]]]


@pytest.mark.usefixtures("no_leaks")
def test_a_daemon_is_started_once_and_found_afterwards(ensure: Ensure, starts: Starts) -> None:
    """P8: the first client pays for the start, the others only connect."""
    first = ensure()
    second = ensure()
    assert first.welcome.pid == second.welcome.pid
    assert [start["pid"] for start in starts()] == [first.welcome.pid]
    first.sock.close()
    second.sock.close()


def test_a_running_daemon_is_used_without_touching_anything(
    ensure: Ensure, greeter: Greeter, data_dir: Path
) -> None:
    """C04: a client that only connects takes no lock and makes no file."""
    ensure(on_wait=greeter.on_wait)
    assert [path.name for path in data_dir.iterdir()] == ["daemon.sock"]


@pytest.mark.requirement("C04", "P6")
def test_a_daemon_that_is_slow_is_waited_for_and_never_replaced(
    ensure: Ensure, greeter: Greeter, starts: Starts, hello: Hello
) -> None:
    """C04: slow is not dead; a second daemon beside a stopped one would break the first's promises."""
    with pytest.raises(DaemonUnavailable, match=r"in time\. .*did not greet") as caught:
        ensure(timeout_seconds=0.3)
    assert "daemon.log" in str(caught.value.details["hint"])
    greeter.drop_one()  # the attempt that was given up

    greeter.act_after(3)
    link = ensure(on_wait=greeter.on_wait)
    assert link.welcome.build == "fake"
    assert greeter.hellos == [hello]
    assert starts() == []


def test_no_spawn_forbids_a_start(ensure: Ensure, starts: Starts, data_dir: Path) -> None:
    """A service manager or a test that starts daemons by itself must be the only one to do so."""
    with pytest.raises(DaemonNotRunning, match="MCPSTATED_NO_SPAWN"):
        ensure(environ={"MCPSTATED_NO_SPAWN": "1"})
    assert starts() == []
    assert list(data_dir.iterdir()) == []


def test_a_reason_for_failing_reaches_the_caller(ensure: Ensure, starts: Starts) -> None:
    """The person at the client sees only what the client is told."""
    with pytest.raises(DaemonUnavailable, match="could not start: out of luck") as caught:
        ensure("fail")
    assert not isinstance(caught.value, DaemonNotRunning)
    assert "daemon.log" in str(caught.value.details["hint"])
    assert len(starts()) == 1


class Clock:
    """Stands in for the module `time`; only sleeping takes any."""

    def __init__(self) -> None:
        self.slept_seconds = 0.0
        self._begin = time.monotonic() + 1000  # what waits for a real process must not be hurried

    def monotonic(self) -> float:
        return self._begin + self.slept_seconds

    def sleep(self, seconds: float) -> None:
        self.slept_seconds += seconds


@pytest.mark.requirement("P2", "P6")
def test_daemons_that_do_not_stay_are_started_less_and_less_often_until_the_deadline(
    ensure: Ensure, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2: no client is told before its 10 s are over. P6: a broken daemon is not started in a tight loop."""
    clock = Clock()
    monkeypatch.setattr("mcpstated.launch.time", clock)
    with pytest.raises(DaemonNotReady, match=r"in time\. It was started \d+ times but did not stay\.$"):
        ensure("die", timeout_seconds=10.0)
    assert clock.slept_seconds == pytest.approx(10.0)
    assert 10 <= len(starts()) <= 14


@pytest.mark.requirement("P2")
@pytest.mark.parametrize("act", ["die", "leave"])
def test_a_daemon_that_ends_after_each_of_many_starts_is_started_once_more(
    ensure: Ensure, starts: Starts, data_dir: Path, act: str
) -> None:
    """P2: whatever kills it, before it is ready or after, the caller has its link and sees no error."""
    script = f'test "$(wc -l < {data_dir}/starts 2>/dev/null || echo 0)" -lt 5 && act={act} || act=serve\n'
    shell = ["/bin/sh", "-c", f'{script}exec "$0" "$1" --act $act "$2" "$3" "$4" "$5"']
    link = ensure(command=[*shell, sys.executable, str(READY_DAEMON)])
    assert len(starts()) == 6
    assert link.welcome.pid == starts()[-1]["pid"]


@pytest.mark.parametrize("reason", ["got 'x'.", "got 'x'"])
def test_a_reason_ends_in_one_full_stop(ensure: Ensure, reason: str) -> None:
    """Some reasons are sentences already."""
    shell = ["/bin/sh", "-c", f'echo "failed: {reason}" >&3']
    with pytest.raises(DaemonUnavailable, match=r"could not start: got 'x'\.$") as caught:
        ensure(command=shell)
    assert not isinstance(caught.value, DaemonNotReady), "nobody waits for what will not get better"


@pytest.mark.requirement("P6")
def test_a_daemon_that_never_gets_ready_is_given_up_at_the_deadline(ensure: Ensure, starts: Starts) -> None:
    """P6: the wait is bounded; the daemon may still come up, so it is not killed and not doubled."""
    while not starts():
        with pytest.raises(DaemonUnavailable, match="still starting"):
            ensure("mute", timeout_seconds=1.0)
    with pytest.raises(DaemonUnavailable, match="starting or leaving"):
        ensure("serve", timeout_seconds=0.3)
    assert len(starts()) == 1


@pytest.mark.requirement("C10")
def test_a_crowd_starts_exactly_one_daemon(
    data_dir: Path, command: Callable[[str], list[str]], starts: Starts
) -> None:
    """C10: clients are started together at login; each finds the same daemon and none sees an error."""
    code = (
        "import os, sys\n"
        "from mcpstated.launch import ensure_daemon, make_hello\n"
        "from mcpstated.protocol.paths import Paths\n"
        "os.read(0, 1)\n"
        "hello = make_hello('library', environ={})\n"
        "paths, command = Paths(sys.argv[1]), sys.argv[2:]\n"
        "link = ensure_daemon(paths, hello, environ=os.environ, command=command, timeout_seconds=30)\n"
        "print(link.welcome.pid)\n"
    )
    gate, release = os.pipe()
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(data_dir), *command("serve")],
            stdin=gate,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(8)
    ]
    os.close(gate)
    os.close(release)  # all of them go on now
    answers = [process.communicate(timeout=60) for process in crowd]
    (start,) = starts()
    assert answers == [(b"%d\n" % start["pid"], b"")] * 8


def test_whoever_waits_for_the_start_lock_goes_on_when_it_is_free(
    ensure: Ensure, paths: Paths, starts: Starts
) -> None:
    """C10: the holder may die without having started anything; the next one does it then."""
    lock = StartLock.try_acquire(paths.start_lock)
    assert lock is not None
    waits = []

    def release_at_third() -> None:
        waits.append(starts())
        if len(waits) == 3:
            lock.release()

    ensure(on_wait=release_at_third)
    assert waits[:3] == [[], [], []]
    assert len(starts()) == 1


def test_a_crowd_gets_in_while_the_start_lock_is_still_held(
    ensure: Ensure, paths: Paths, greeter: Greeter
) -> None:
    """C10: a lock is needed to prove that there is no daemon, not to use the one that there is."""
    lock = StartLock.try_acquire(paths.start_lock)
    assert lock is not None
    listening = Path(paths.socket)
    hidden = listening.rename(listening.with_name("hidden"))
    waits = []

    def appear() -> None:
        waits.append(1)
        if len(waits) == 2:
            hidden.rename(listening)
        elif len(waits) > 2:
            greeter.on_wait()

    assert ensure(on_wait=appear).welcome.build == "fake"
    lock.release()


@pytest.mark.requirement("C04")
def test_a_daemon_that_still_holds_its_lock_is_waited_for(
    ensure: Ensure, paths: Paths, starts: Starts
) -> None:
    """C04: one that is leaving has no socket any more but still writes; the next must come after it."""
    held = os.open(paths.lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    waits = []

    def leave_at_third() -> None:
        waits.append(starts())
        if len(waits) == 3:
            os.close(held)

    ensure(on_wait=leave_at_third)
    assert waits[:3] == [[], [], []]
    assert len(starts()) == 1


@pytest.mark.requirement("C04")
def test_what_lies_in_the_sockets_place_stays_there(ensure: Ensure, paths: Paths, starts: Starts) -> None:
    """C04: it is named and refused, and no daemon is started for nothing."""
    Path(paths.socket).write_text("mine")
    with pytest.raises(DaemonUnavailable, match="is not a socket"):
        ensure()
    assert Path(paths.socket).read_text() == "mine"
    assert starts() == []


@pytest.mark.requirement("C04", "C03")
def test_a_dead_socket_is_no_obstacle(ensure: Ensure, greeter: Greeter, starts: Starts) -> None:
    """C04: after a kill -9 the socket is still there and refuses; a new daemon takes its place."""
    greeter.close()
    ensure()
    assert len(starts()) == 1


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_everything_is_private_from_creation_on(
    data_dir: Path, hello: Hello, command: Callable[[str], list[str]], umask: int
) -> None:
    """Nothing is open to others for an instant, nor closed to its owner, whatever the caller's umask is."""
    store = data_dir / "deep" / "store"
    before = os.umask(umask)
    try:
        link = ensure_daemon(Paths(str(store)), hello, environ=os.environ, command=command("serve"))
    finally:
        os.umask(before)
    link.sock.close()
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert store.parent.stat().st_mode & 0o700 == 0o700, "else nobody could enter"
    assert (store / "start.lock").stat().st_mode & 0o600 == 0o600, "else nobody could start the next one"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in store.iterdir()}
    assert set(modes) == {"daemon.lock", "daemon.log", "daemon.sock", "start.lock", "starts"}
    assert set(modes.values()) == {0}


@pytest.mark.parametrize("fault", ["a file", "writable by others", "another user's", "below a file"])
def test_a_data_directory_that_cannot_be_trusted_is_refused(
    tmp_path: Path,
    hello: Hello,
    command: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    """P5: what others can write to, others can replace; the message names the path and the reason."""
    store = tmp_path / "store"
    expected = {
        "a file": "is not a directory",
        "writable by others": "may be written to by others .*chmod 700",
        "another user's": "belongs to another user",
        "below a file": "cannot be (made|used)",
    }[fault]
    if fault == "a file":
        store.write_text("mine")
    elif fault == "below a file":
        store.write_text("mine")
        store = store / "store"
    else:
        store.mkdir(mode=0o700)
    if fault == "writable by others":
        store.chmod(0o770)
    if fault == "another user's":
        somebody_else = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: somebody_else)
    with pytest.raises(DaemonUnavailable, match=f"{store}.* {expected}"):
        ensure_daemon(Paths(str(store), str(tmp_path / "s")), hello, environ={}, command=command("serve"))
    if store.is_dir():
        assert list(store.iterdir()) == []


def test_a_start_lock_that_cannot_be_made_is_named(ensure: Ensure, paths: Paths) -> None:
    """A full or read-only disk is told as what it is."""
    Path(paths.start_lock).mkdir()
    with pytest.raises(DaemonUnavailable, match=r"start\.lock cannot be locked: Is a directory"):
        ensure()


HOST_PROGRAM = """
import os, signal, sys, threading
from mcpstated.launch import ensure_daemon, make_hello
from mcpstated.protocol.paths import Paths
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
stop = threading.Event()
threads = [threading.Thread(target=stop.wait) for _ in range(4)]
for thread in threads: thread.start()
command = [sys.executable, *sys.argv[2:]]
sys.executable = ""
try:
    hello = make_hello("library", environ={})
    link = ensure_daemon(Paths(sys.argv[1]), hello, environ=os.environ, command=command)
    print(link.welcome.pid)
    link.sock.close()
finally:
    stop.set()
"""


def test_a_host_program_with_threads_and_habits_of_its_own_can_start_it(
    data_dir: Path, command: Callable[[str], list[str]], starts: Starts
) -> None:
    """The library runs in servers: with threads, SIGCHLD ignored, Python embedded, warnings as errors."""
    output = subprocess.check_output(
        [sys.executable, "-W", "error", "-c", HOST_PROGRAM, str(data_dir), *command("serve")[1:]],
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    assert output == b"%d\n" % starts()[0]["pid"]
