"""Type-checks the working tree without building it: the packages are laid out as a wheel would have them.

    python .ci/types_of_tree.py

For the hooks of a developer, who cannot wait for a wheel; `.ci/run` checks the real one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent


def main() -> int:
    """Lay the packages out in a temporary folder and run mypy there."""
    with (TREE / "pyproject.toml").open("rb") as stream:
        folders: dict[str, str] = tomllib.load(stream)["tool"]["setuptools"]["package-dir"]
    with tempfile.TemporaryDirectory() as scratch:
        for package, folder in sorted(folders.items()):  # the root package comes before those inside it
            shutil.copytree(TREE / folder, Path(scratch, *package.split(".")), dirs_exist_ok=True)
        command = [sys.executable, "-m", "mypy", "--config-file", str(TREE / "pyproject.toml")]
        command += ["--cache-dir", str(TREE / ".mypy_cache"), "-p", "mcpstated"]
        return subprocess.run(
            command, cwd=scratch, env={**os.environ, "MYPYPATH": scratch}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
