"""An earlier revision of this repository as a package that processes of a test can import."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from support.layout import ROOT, lay_out


def old_package(revision: str, directory: Path) -> Path:
    """Unpack a revision into a directory, and return what PYTHONPATH must be for it. Needs git."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", revision], capture_output=True, check=True
    )
    tree = directory / "tree"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(tree, filter="data")
    return lay_out(directory, tree)
