"""A real daemon process on a directory of its own, looked at from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcpstated.protocol.paths import Paths


class DaemonProcess:
    """What a test knows of a daemon that it started."""

    def __init__(self, process: subprocess.Popen[bytes], data_dir: Path) -> None:
        self.process = process
        paths = Paths(str(data_dir))
        self.data_dir = data_dir
        self.socket = paths.socket
        self._log = Path(paths.log)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def memory_bytes(self, field: str = "VmRSS") -> int:
        """Return its resident memory; `VmHWM` is the most that it ever was. Linux only."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))

    def descriptors(self) -> int:
        """Return how many descriptors it has open. Linux only."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def log(self) -> str:
        """Return what it wrote into its log file."""
        return self._log.read_text(encoding="utf-8")


@contextmanager
def daemon_process(data_dir: Path, *, max_descriptors: int | None = None) -> Iterator[DaemonProcess]:
    """Start a daemon, wait until it serves, and kill it in the end.

    Args:
        max_descriptors: The system's limit on its open descriptors.
    """
    ready, reports = os.pipe()
    limit = f"ulimit -n {max_descriptors}; " if max_descriptors else ""
    command = [sys.executable, "-m", "mcpstated.cli", "--data-dir", str(data_dir), "daemon"]
    with subprocess.Popen(
        ["/bin/sh", "-c", f'{limit}exec "$@"', "sh", *command, "--ready-fd", str(reports)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[reports],
    ) as process:
        try:
            os.close(reports)
            with os.fdopen(ready, "rb") as stream:
                said = stream.read()
            if said != b"ready\n":
                raise RuntimeError(f"the daemon did not start: {said.decode(errors='replace')}")
            yield DaemonProcess(process, data_dir)
        finally:
            process.kill()
