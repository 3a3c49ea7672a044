"""Ring 3 and 4: how a daemon begins and ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from mcpstated.protocol.paths import Paths
from support.daemons import daemon_in
from support.wire import client_at, farewell, shim_at


def start_daemon(data_dir: Path, *flags: str) -> subprocess.Popen[bytes]:
    """Start a daemon in the foreground, as a service manager does."""
    return subprocess.Popen(
        [sys.executable, "-m", "mcpstated.cli", "--data-dir", str(data_dir), "daemon", *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def until_it_listens(path: str) -> None:
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except OSError:
                await trio.sleep(0.02)
            else:
                return


async def test_it_leaves_when_nobody_is_there_for_the_idle_time(data_dir: Path) -> None:
    """A daemon that nobody uses costs memory; the next client starts one."""
    async with daemon_in(data_dir, idle_seconds=0.2) as daemon:
        with trio.fail_after(10):
            async with client_at(daemon.socket) as client:
                await client.request("status")
            await daemon.ended.wait()

    assert daemon.exit_code == 0
    assert not Path(daemon.socket).exists()


async def test_an_attached_shim_keeps_it_however_silent(data_dir: Path) -> None:
    """An agent that thinks for an hour must find its daemon where it was."""
    async with daemon_in(data_dir, idle_seconds=0.05) as daemon, shim_at(daemon.socket) as shim:
        with trio.move_on_after(1.5):
            await daemon.ended.wait()
        assert not daemon.ended.is_set()
        with trio.fail_after(10):
            await shim.handshake()


@pytest.mark.requirement("C03")
async def test_the_idle_exit_waits_while_somebody_starts_a_daemon(data_dir: Path) -> None:
    """Whoever holds the start lock has probed and is about to connect: leaving now would let it down."""
    from mcpstated.daemon.lock import FileLock

    with FileLock(Paths(str(data_dir)).start_lock) as starting:
        assert starting.try_acquire()
        async with daemon_in(data_dir, idle_seconds=0.05) as daemon:
            with trio.move_on_after(1.5):
                await daemon.ended.wait()
            assert not daemon.ended.is_set()
            starting.release()
            with trio.fail_after(10):
                await daemon.ended.wait()


async def test_a_socket_that_was_removed_is_bound_again(data_dir: Path) -> None:
    """Cleaners remove sockets; the daemon must stay reachable."""
    async with daemon_in(data_dir) as daemon:
        Path(daemon.socket).unlink()
        with trio.fail_after(10):
            await until_it_listens(daemon.socket)
            async with client_at(daemon.socket) as client:
                assert "daemon" in await client.request("status")


@pytest.mark.requirement("C18")
async def test_it_steps_down_when_its_directory_is_gone(data_dir: Path) -> None:
    """P1: nothing may be acknowledged into a file that nobody can find again."""
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as client:
        shutil.rmtree(data_dir)
        with trio.fail_after(20):
            assert "removed or replaced" in (await farewell(client)).text
            await daemon.ended.wait()

    assert daemon.exit_code == 1
    assert not data_dir.exists()


@pytest.mark.requirement("P1", "C18")
@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_no_write_is_acknowledged_into_a_database_that_is_gone(data_dir: Path, how: str) -> None:
    """The very next write fails: nobody may be told that something is stored where nobody finds it."""
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as client:
        with trio.fail_after(10):
            await client.request("mint", kind="t", state="{}")
            database = Path(daemon.settings.database)
            database.rename(data_dir / "elsewhere.db")
            if how == "replaced":
                database.write_bytes((data_dir / "elsewhere.db").read_bytes())

            answer = await client.request("mint", kind="t", state="{}")

    assert answer["error"]["code"] == "backend_error"
    assert "removed or replaced" in answer["error"]["message"]


@pytest.mark.requirement("P3")
async def test_two_daemons_never_serve_one_database(data_dir: Path, tmp_path: Path) -> None:
    """Two data directories that name the same database: the second daemon says so and leaves."""
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    async with daemon_in(data_dir) as daemon:
        with trio.fail_after(30):
            process = await trio.run_process(
                [sys.executable, "-m", "mcpstated.cli", "--data-dir", str(other), "daemon"],
                env={**os.environ, "MCPSTATED_BACKEND": f"sqlite:///{daemon.settings.database}"},
                capture_stderr=True,
                check=False,
            )

    assert process.returncode == 1
    assert b"Another daemon holds the directory" in process.stderr


@pytest.mark.requirement("C04")
async def test_a_second_daemon_in_the_directory_exits_and_changes_nothing(data_dir: Path) -> None:
    """One directory, one daemon: the second one says so and leaves."""
    async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as client:
        before = Path(daemon.socket).stat().st_ino
        with trio.fail_after(30):
            second = await trio.run_process(
                [sys.executable, "-m", "mcpstated.cli", "--data-dir", str(data_dir), "daemon"],
                capture_stderr=True,
                check=False,
            )
            assert second.returncode == 1
            assert b"already serves" in second.stderr
            assert Path(daemon.socket).stat().st_ino == before
            assert "daemon" in await client.request("status")


@pytest.mark.requirement("C04")
async def test_something_else_in_the_sockets_place_is_left_alone(data_dir: Path) -> None:
    """The daemon names the path and does not start; only a dead socket is ever removed."""
    path = Path(Paths(str(data_dir)).socket)
    path.write_text("precious")
    with trio.fail_after(30):
        process = await trio.run_process(
            [sys.executable, "-m", "mcpstated.cli", "--data-dir", str(data_dir), "daemon"],
            capture_stderr=True,
            check=False,
        )

    assert process.returncode == 1
    assert str(path).encode() in process.stderr
    assert path.read_text() == "precious"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_it_in_order(data_dir: Path, number: signal.Signals) -> None:
    """Acknowledged writes are there, the socket is gone, the log is checkpointed, the exit code is 0."""
    paths = Paths(str(data_dir))
    process = start_daemon(data_dir)
    try:
        with trio.fail_after(30):
            await until_it_listens(paths.socket)
            async with client_at(paths.socket) as client:
                await client.request("mint", kind="t", state="{}")
                process.send_signal(number)
                assert (await farewell(client)).reason == "stopping"
            code = await trio.to_thread.run_sync(process.wait)
    finally:
        process.kill()
        process.communicate()

    assert code == 0
    assert not Path(paths.socket).exists()
    wal = Path(paths.database + "-wal")
    assert not wal.exists() or wal.stat().st_size == 0


@pytest.mark.requirement("P1")
async def test_after_sigkill_the_next_daemon_has_every_acknowledged_write(data_dir: Path) -> None:
    """kill -9 of the daemon loses nothing that was answered, and its dead socket is in nobody's way."""
    paths = Paths(str(data_dir))
    process = start_daemon(data_dir)
    try:
        with trio.fail_after(30):
            await until_it_listens(paths.socket)
            async with client_at(paths.socket) as client:
                handle = (await client.request("mint", kind="t", state='{"l":[]}'))["info"]["handle"]
                for n in range(20):
                    ops = f'[{{"op":"append","path":"l","value":{n}}}]'
                    assert "info" in await client.request("patch", handle=handle, ops=ops)
                process.kill()
                await trio.to_thread.run_sync(process.wait)
            async with daemon_in(data_dir) as daemon, client_at(daemon.socket) as client:
                loaded = await client.request("load", handle=handle)
    finally:
        process.kill()
        process.communicate()

    assert loaded["state"] == '{"l":[' + ",".join(map(str, range(20))) + "]}"
    assert loaded["version"] == 21


@pytest.mark.requirement("C19")
async def test_it_undoes_what_its_parent_did_to_signals(data_dir: Path) -> None:
    """A parent that blocks or ignores SIGTERM must not make a daemon that nobody can stop."""
    paths = Paths(str(data_dir))

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    process = subprocess.Popen(  # the child is about to be the daemon
        [sys.executable, "-m", "mcpstated.cli", "--data-dir", str(data_dir), "daemon"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=block,  # noqa: PLW1509  # the child is about to be the daemon
    )
    try:
        with trio.fail_after(30):
            await until_it_listens(paths.socket)
            process.terminate()
            assert await trio.to_thread.run_sync(process.wait) == 0
    finally:
        process.kill()
        process.wait()


async def test_what_it_writes_is_private(data_dir: Path) -> None:
    """P5: 0600 and 0700 from creation on, whatever the umask of whoever starts it."""
    paths = Paths(str(data_dir / "fresh"))
    process = subprocess.Popen(
        [sys.executable, "-m", "mcpstated.cli", "--data-dir", paths.data_dir, "daemon"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        umask=0,
    )
    try:
        with trio.fail_after(30):
            await until_it_listens(paths.socket)
            async with client_at(paths.socket) as client:
                await client.request("mint", kind="t", state="{}")
            modes = {file.name: file.stat().st_mode & 0o777 for file in Path(paths.data_dir).iterdir()}
            directory_mode = Path(paths.data_dir).stat().st_mode & 0o777
    finally:
        process.terminate()
        process.wait()

    assert directory_mode == 0o700
    assert {"state.db", "daemon.sock", "daemon.lock", "daemon.log"} <= set(modes)
    assert set(modes.values()) == {0o600}


async def test_a_database_of_another_program_is_refused_with_the_reason(data_dir: Path) -> None:
    """The file is left as it was; people learn which file and why."""
    paths = Paths(str(data_dir))
    Path(paths.database).write_bytes(b"this is no database, but it is somebody's" * 100)
    with trio.fail_after(30):
        process = await trio.run_process(
            [sys.executable, "-m", "mcpstated.cli", "--data-dir", str(data_dir), "daemon"],
            capture_stderr=True,
            check=False,
        )

    assert process.returncode == 1
    assert b"state.db" in process.stderr
    assert b"Traceback" not in process.stderr
    assert Path(paths.database).read_bytes().startswith(b"this is no database")
    assert not os.path.lexists(paths.socket)
