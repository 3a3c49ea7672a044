"""Prints the Python interpreters that the tests must pass on, one path a line, the default one first.

CI_PYTHONS names them (paths or commands, separated by spaces); without it they are looked for: python3,
python3.11 and later on PATH, and what pyenv has. One is taken of each minor version.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
NEWEST_MINOR = 14
PROBE = "import sys, venv, ensurepip; print(sys.version_info[0], sys.version_info[1], sys.executable)"


def candidates() -> list[str]:
    """Return commands and paths that may be interpreters, the default one first."""
    if os.environ.get("CI_PYTHONS"):
        return os.environ["CI_PYTHONS"].split()
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    return [
        "python3",
        *(f"python3.{minor}" for minor in range(OLDEST[1], NEWEST_MINOR + 1)),
        *sorted(map(str, versions.glob("*/bin/python3"))),
    ]


def probe(candidate: str) -> tuple[tuple[int, int], str] | None:
    """Return version and path of an interpreter that can make virtual environments, or None."""
    path = shutil.which(candidate)
    if path is None:
        return None
    asked = subprocess.run(
        [path, "-c", PROBE], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if asked.returncode != 0:
        return None
    major, minor, executable = asked.stdout.strip().split(" ", 2)
    return (int(major), int(minor)), executable


def main() -> None:
    """Print the interpreters; exit 1 if there is none, or if one that was asked for cannot be used."""
    found: dict[tuple[int, int], str] = {}
    for candidate in candidates():
        known = probe(candidate)
        if known is not None and known[0] >= OLDEST:
            found.setdefault(*known)
        elif os.environ.get("CI_PYTHONS"):
            sys.exit(f"CI_PYTHONS names {candidate}, which is no Python 3.11 or newer with venv")
    if not found:
        sys.exit("no Python 3.11 or newer with venv was found")
    print("\n".join(found.values()))


if __name__ == "__main__":
    main()
