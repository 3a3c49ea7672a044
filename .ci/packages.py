"""Reads from pyproject.toml which packages the distribution must hold."""

from __future__ import annotations

import tomllib
from pathlib import Path


def packages(tree: Path) -> list[str]:
    """Return the import names of all packages, as they are listed for setuptools."""
    with (tree / "pyproject.toml").open("rb") as stream:
        listed: list[str] = tomllib.load(stream)["tool"]["setuptools"]["packages"]
    return listed
