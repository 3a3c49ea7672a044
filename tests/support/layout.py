"""The packages as a wheel has them, made of links to the folders of this tree."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _sources(root: Path) -> dict[str, Path]:
    with (root / "pyproject.toml").open("rb") as stream:
        folders: dict[str, str] = tomllib.load(stream)["tool"]["setuptools"]["package-dir"]
    return {package: root / folder for package, folder in folders.items()}


SOURCES = _sources(ROOT)
"""Import name of each top package, and its folder."""


def lay_out(directory: Path, root: Path = ROOT) -> Path:
    """Make a folder in `directory` from which the `mcpstated` of a tree can be imported, and return it."""
    top = directory / "layout"
    for package, folder in sorted(_sources(root).items()):
        place = top.joinpath(*package.split("."))
        if package == "mcpstated":
            place.mkdir(parents=True)
            for path in folder.iterdir():
                (place / path.name).symlink_to(path)
        else:
            place.symlink_to(folder)
    return top
