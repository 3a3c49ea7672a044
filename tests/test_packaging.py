"""What the distribution holds, and the two commands that the README promises."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from mcpstated.protocol.version import VERSION
from support.layout import ROOT, SOURCES

with (ROOT / "pyproject.toml").open("rb") as _stream:
    PROJECT = tomllib.load(_stream)
SETUPTOOLS = PROJECT["tool"]["setuptools"]
COMMANDS = (
    "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/mcpstated demo",
    "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest",
)


def folders_with_code() -> dict[str, Path]:
    """Return every folder below the top packages that holds Python files, by its import name."""
    found = {}
    for package, top in SOURCES.items():
        for path in top.rglob("*.py"):
            inner = path.parent.relative_to(top).parts
            found[".".join([package, *inner])] = path.parent
    return found


def test_every_folder_with_code_is_a_listed_package() -> None:
    """A folder that is not listed works in the checkout and is missing from the wheel."""
    assert set(folders_with_code()) == set(SETUPTOOLS["packages"])


def test_every_listed_package_has_an_init_file() -> None:
    """Without it the type checker and `importlib.resources` see a namespace, not a package."""
    assert [
        str(folder) for folder in folders_with_code().values() if not (folder / "__init__.py").is_file()
    ] == []


def test_the_folder_of_service_files_is_no_package() -> None:
    """With an `__init__.py` it would hide the library `packaging` from everything run in the checkout."""
    assert not (ROOT / "packaging" / "__init__.py").exists()
    assert list((ROOT / "packaging").rglob("*.py")) == []


def test_the_marker_of_typed_packages_is_shipped() -> None:
    """Type checkers ignore the annotations of a distribution without it."""
    assert (SOURCES["mcpstated"] / "py.typed").is_file()
    assert "py.typed" in SETUPTOOLS["package-data"]["mcpstated"]


def test_the_installed_version_is_the_one_in_the_source() -> None:
    """`mcpstated --version`, the wire and the package index must name the same build."""
    assert importlib.metadata.version("mcpstated") == VERSION
    assert f"[{VERSION}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_readme_holds_the_commands_that_ci_runs(command: str) -> None:
    """A person with a fresh machine copies them; CI takes them from there."""
    assert (ROOT / "README.md").read_text(encoding="utf-8").splitlines().count(command) == 1
