"""Starting the daemon through the user's service manager, where its unit is installed.

A service that systemd or launchd knows must run under it, so that it is restarted, limited and logged
as its owner set it up. Only the default store has a service.
"""

from __future__ import annotations

import os
import sys
import time

from mcpstated.children import wait_for_exit
from mcpstated.protocol.paths import Paths, default_data_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SYSTEMD_UNIT = "mcpstated.service"
LAUNCHD_LABEL = "dev.mcpstated"


def service_command(
    paths: Paths, environ: Mapping[str, str], *, platform: str = sys.platform
) -> list[str] | None:
    """Return the command that starts the installed service, or None if none is installed for this store."""
    home = environ.get("HOME") or os.path.expanduser("~")
    default = default_data_dir(home, platform)
    if paths.data_dir != default or paths.socket != Paths(default).socket:
        return None
    if platform == "darwin":
        unit = os.path.join(home, "Library", "LaunchAgents", f"{LAUNCHD_LABEL}.plist")
        words = ["launchctl", "kickstart", f"gui/{os.getuid()}/{LAUNCHD_LABEL}"]
    else:
        unit = os.path.join(home, ".config", "systemd", "user", SYSTEMD_UNIT)
        words = ["systemctl", "--user", "start", SYSTEMD_UNIT]
    program = _program(words[0], environ) if os.path.isfile(unit) else None
    return [program, *words[1:]] if program is not None else None


def start_service(
    command: list[str],
    environ: Mapping[str, str],
    *,
    timeout_seconds: float,
    on_wait: Callable[[], None] | None = None,
) -> bool:
    """Run the command to its end; True if it said that the service has started.

    A command that takes longer than `timeout_seconds` is killed: the service manager goes on by itself.
    """
    runtime_dir = f"/run/user/{os.getuid()}"  # where systemd listens; MCP clients do not pass it on
    environment = {"XDG_RUNTIME_DIR": runtime_dir, **environ}
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    try:
        pid = os.posix_spawn(command[0], command, environment, file_actions=null)
    except OSError:
        return False
    try:
        return wait_for_exit(pid, deadline=time.monotonic() + timeout_seconds, on_wait=on_wait) == 0
    except ChildProcessError:  # the host program waits for everyone's children
        return False


def _program(name: str, environ: Mapping[str, str]) -> str | None:
    for directory in (environ.get("PATH") or os.defpath).split(os.pathsep):
        path = os.path.join(directory, name)
        if os.path.isabs(path) and os.access(path, os.X_OK):
            return path
    return None
