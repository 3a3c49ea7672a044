"""Ring 4: a service that is installed is started instead of a process of our own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpstated.launch import ensure_daemon
from mcpstated.protocol.messages import Hello
from mcpstated.protocol.paths import Paths, default_data_dir
from mcpstated.service import service_command, start_service
from support.reaper import kill_daemons_below

READY_DAEMON = Path(__file__).parent.parent / "support" / "ready_daemon.py"


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with the default store, an installed unit and a service manager that the test writes."""
    home = Path(os.environ["HOME"])
    unit = home / ".config" / "systemd" / "user" / "mcpstated.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\n")
    (home / "bin").mkdir()
    yield home
    kill_daemons_below(home)


def write_systemctl(home: Path, script: str) -> None:
    program = home / "bin" / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$XDG_RUNTIME_DIR $@" >> "{home}/asked"\n{script}\n')
    program.chmod(0o700)


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": f"{home}/bin:/usr/bin:/bin"}


def ensure_in(home: Path, hello: Hello, command: Callable[[str], list[str]]) -> tuple[int, list[Any]]:
    """Start the daemon of the home's default store; return its pid and who was asked for it."""
    paths = Paths(default_data_dir(str(home), "linux"))
    link = ensure_daemon(paths, hello, environ=environment(home), command=command("serve"))
    link.sock.close()
    return link.welcome.pid, (home / "asked").read_text().splitlines()


linux = pytest.mark.skipif(sys.platform != "linux", reason="the default directory is another one elsewhere")


@linux
def test_the_installed_unit_is_started(home: Path, hello: Hello, command: Callable[[str], list[str]]) -> None:
    """A unit's owner set limits and restarts; a process beside it would have neither."""
    store = default_data_dir(str(home), "linux")
    write_systemctl(
        home, f'"{sys.executable}" "{READY_DAEMON}" --data-dir "{store}" --ready-fd 9 9>"{home}/ready" &'
    )
    _pid, asked = ensure_in(home, hello, command)
    assert asked == [f"/run/user/{os.getuid()} --user start mcpstated.service"]
    assert (home / "ready").read_text() == "ready\n", "the service manager's daemon, not a spawned one"


@linux
def test_a_unit_that_fails_is_replaced_by_a_process(
    home: Path, hello: Hello, command: Callable[[str], list[str]]
) -> None:
    """A user bus that is not there (ssh, containers) must not take the state away."""
    write_systemctl(home, "exit 1")
    pid, asked = ensure_in(home, hello, command)
    assert len(asked) == 1
    os.kill(pid, 0)


def test_only_the_default_store_has_a_service(home: Path) -> None:
    """Another directory is another store, which the unit knows nothing of."""
    write_systemctl(home, "exit 0")
    environ = environment(home)
    default = default_data_dir(str(home), "linux")
    expected = [str(home / "bin" / "systemctl"), "--user", "start", "mcpstated.service"]
    assert service_command(Paths(default), environ, platform="linux") == expected
    assert service_command(Paths(str(home / "other")), environ, platform="linux") is None
    assert service_command(Paths(default, str(home / "s.sock")), environ, platform="linux") is None
    (home / ".config" / "systemd" / "user" / "mcpstated.service").unlink()
    assert service_command(Paths(default), environ, platform="linux") is None


def test_macos_has_its_own_service_manager(home: Path) -> None:
    """The agent is kicked by its label in the user's own domain."""
    launchctl = home / "bin" / "launchctl"
    launchctl.write_text("#!/bin/sh\n")
    launchctl.chmod(0o700)
    agent = home / "Library" / "LaunchAgents" / "dev.mcpstated.plist"
    paths = Paths(default_data_dir(str(home), "darwin"))
    assert service_command(paths, environment(home), platform="darwin") is None
    agent.parent.mkdir(parents=True)
    agent.write_text("<plist/>")
    assert service_command(paths, environment(home), platform="darwin") == [
        str(launchctl),
        "kickstart",
        f"gui/{os.getuid()}/dev.mcpstated",
    ]


@pytest.mark.requirement("P6")
@pytest.mark.usefixtures("no_leaks")
def test_a_service_manager_that_hangs_is_not_waited_for(home: Path) -> None:
    """P6: the wait is bounded, and the command that hangs does not stay behind."""
    write_systemctl(home, "exec sleep 1000")
    command = [str(home / "bin" / "systemctl")]
    assert start_service(command, environment(home), timeout_seconds=0.2) is False


@pytest.mark.usefixtures("no_leaks")
def test_an_ended_search_leaves_no_command_behind(home: Path) -> None:
    """A shim whose client is gone ends its search in the middle of it."""
    write_systemctl(home, "exec sleep 1000")

    def give_up() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start_service(
            [str(home / "bin" / "systemctl")], environment(home), timeout_seconds=20, on_wait=give_up
        )


def test_a_service_manager_that_is_missing_is_no_error(home: Path) -> None:
    """A unit file that was synchronised from another machine, where systemd is not the init."""
    paths, environ = Paths(default_data_dir(str(home), "linux")), {"HOME": str(home), "PATH": "/nowhere"}
    assert service_command(paths, environ, platform="linux") is None
    assert start_service(["/nonexistent/systemctl"], {}, timeout_seconds=1) is False
