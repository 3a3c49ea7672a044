"""What the system knows of a process: resident memory and bytes written to disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path


def rss_bytes(pid: int) -> int:
    """Return the resident memory of one process."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        shown = subprocess.run(
            ["/bin/ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
        )
        return int(shown.stdout) * 1024
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


def peak_rss_bytes(pid: int) -> int:
    """Return the most resident memory that a process ever had, or what it has now where nobody counts."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return rss_bytes(pid)
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def total_rss_bytes(pids: Iterable[int]) -> int:
    """Return the resident memory of several processes together; shared pages count for each of them."""
    return sum(rss_bytes(pid) for pid in pids)


def written_bytes(pid: int) -> int | None:
    """Return what a process caused to be written to disk so far, or None where the system does not tell."""
    try:
        counters = Path(f"/proc/{pid}/io").read_text()
    except OSError:
        return None
    return next(int(line.split()[1]) for line in counters.splitlines() if line.startswith("write_bytes:"))
