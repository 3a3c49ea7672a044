"""Counting what a test may leave behind: descriptors, threads and child processes of this process."""

from __future__ import annotations

import gc
import os
import threading
from dataclasses import dataclass
from pathlib import Path

IDLE_WORKER = "Trio thread "
"""How trio names a worker that it keeps for the next job; a busy one is named after its job."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What this process holds at one moment."""

    descriptors: frozenset[tuple[int, str]]
    threads: frozenset[tuple[int, str]]
    children: frozenset[int]


def resources() -> Resources:
    """Return what this process holds now."""
    gc.collect()
    return Resources(
        descriptors=frozenset(_descriptors()),
        threads=frozenset(
            (thread.ident or 0, thread.name)
            for thread in threading.enumerate()
            if not thread.name.startswith(IDLE_WORKER)
        ),
        children=frozenset(_children()),
    )


def leaks_since(before: Resources) -> list[str]:
    """Return one line for each thing that is held now and was not held then."""
    now = resources()
    return [
        *(f"descriptor {fd} -> {target}" for fd, target in sorted(now.descriptors - before.descriptors)),
        *(f"thread {name}" for _, name in sorted(now.threads - before.threads)),
        *(f"process {pid}" for pid in sorted(now.children - before.children)),
    ]


def _descriptors() -> list[tuple[int, str]]:
    links = Path("/proc/self/fd")
    found = []
    for entry in (links if links.is_dir() else Path("/dev/fd")).iterdir():
        try:
            status = os.fstat(int(entry.name))
            is_named = links.is_dir()
            target = str(entry.readlink()) if is_named else f"device {status.st_dev} inode {status.st_ino}"
        except OSError:
            continue  # the descriptor that listed the table is closed by now
        found.append((int(entry.name), target))
    return found


def _children() -> list[int]:
    """Return the pids of living child processes; empty where the system has no such list."""
    try:
        texts = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:
        return []
    return [int(pid) for text in texts for pid in text.split()]
