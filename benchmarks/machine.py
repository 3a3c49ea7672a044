"""Where and when a run was made."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """What a reader must know of the machine to compare figures."""

    date: str
    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    file_system: str


def describe(python: str, scratch: Path) -> Machine:
    """Describe this machine, the interpreter that both sides run on, and the disk of the stores."""
    asked = subprocess.run(
        [python, "-c", "import platform; print(platform.python_version())"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Machine(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=asked.stdout.strip(),
        file_system=_file_system(scratch),
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        asked = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True,
            text=True,
            check=False,
        )
        return asked.stdout.strip() or platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _file_system(directory: Path) -> str:
    """Return the type of the file system that holds `directory`, or an empty text."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = [mount for mount in mounts if directory.resolve().is_relative_to(mount[1])]
    return max(above, key=lambda mount: len(mount[1]))[2] if above else ""
