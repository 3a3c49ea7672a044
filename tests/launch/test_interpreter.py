"""Ring 4: an interpreter that finds this installation and nothing of its caller's."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcpstated.interpreter import interpreter_path

REPORT = (
    "import json, mcpstated; from mcpstated.interpreter import import_settings\n"
    "print(json.dumps([next(iter(mcpstated.__path__)), *import_settings()]))"
)


def lay_out(directory: Path) -> Path:
    """Make `directory` a place that the package can be imported from; return the package."""
    package = directory / "mcpstated"
    package.mkdir(parents=True)
    for file in Path(next(iter(importlib.import_module("mcpstated").__path__))).glob("*.py"):
        (package / file.name).symlink_to(file)
    (package / "protocol").symlink_to(next(iter(importlib.import_module("mcpstated.protocol").__path__)))
    return package


def report(*command: str, cwd: Path, **environ: str) -> tuple[str, list[str], str | None]:
    output = subprocess.check_output([*command, "-c", REPORT], cwd=cwd, env=environ, timeout=60)
    package, flags, python_path = json.loads(output)
    return package, flags, python_path


def found_by(python: str, flags: list[str], python_path: str | None, **environ: str) -> str:
    """Return where an interpreter with these settings finds the package, from the root directory."""
    more = {"PYTHONPATH": python_path} if python_path else {}
    code = "import mcpstated; print(next(iter(mcpstated.__path__)))"
    return subprocess.check_output(
        [python, *flags, "-c", code], cwd="/", env={**environ, **more}, text=True, timeout=60
    ).strip()


def test_a_package_on_the_python_path_is_found_again(tmp_path: Path) -> None:
    """Installed with `pip install --target`: the daemon needs the path, but nothing else of PYTHON*."""
    package = lay_out(tmp_path / "target")
    found, flags, python_path = report(
        sys.executable, "-S", cwd=tmp_path, PYTHONPATH=f"{tmp_path / 'target'}:{tmp_path}", PYTHONHASHSEED="0"
    )
    assert (found, flags) == (str(package), ["-P", "-s"])
    assert python_path == f"{tmp_path / 'target'}:{tmp_path}"
    assert found_by(sys.executable, [*flags, "-S"], python_path) == str(package)


def test_a_package_in_the_callers_directory_is_found_again_by_its_absolute_path(tmp_path: Path) -> None:
    """The daemon runs in the root directory, where a relative path means something else."""
    package = lay_out(tmp_path)
    found, flags, python_path = report(sys.executable, "-S", cwd=tmp_path)
    assert (os.path.realpath(found), flags) == (os.path.realpath(package), ["-P", "-s"])
    assert python_path is not None
    assert os.path.realpath(python_path) == os.path.realpath(tmp_path)


def test_a_package_in_the_users_site_is_found_again(tmp_path: Path) -> None:
    """Installed with `pip install --user`: full isolation would hide it."""
    python = sys._base_executable  # type: ignore[attr-defined]  # a virtual environment has no user site
    site = subprocess.check_output(
        [python, "-m", "site", "--user-site"], env={"HOME": str(tmp_path)}, text=True, timeout=60
    )
    package = lay_out(Path(site.strip()))
    found, flags, python_path = report(python, cwd=tmp_path, HOME=str(tmp_path))
    assert (found, flags, python_path) == (str(package), ["-E", "-P"], None)
    assert found_by(python, flags, python_path, HOME=str(tmp_path)) == str(package)


def test_a_package_in_a_virtual_environment_needs_nothing(tmp_path: Path) -> None:
    """The usual case: isolated from everything."""
    subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], timeout=60)
    python = str(tmp_path / "venv" / "bin" / "python")
    site = subprocess.check_output(
        [python, "-c", "import site; print(site.getsitepackages()[0])"], text=True, timeout=60
    )
    package = lay_out(Path(site.strip()))
    found, flags, python_path = report(python, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (found, flags, python_path) == (str(package), ["-I"], None)
    assert found_by(python, flags, python_path) == str(package)


@pytest.mark.parametrize("executable", ["", "/usr/sbin/server-with-python-inside", "python3"])
def test_where_python_is_embedded_the_interpreter_beside_the_library_is_used(
    monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    """`sys.executable` then names nothing, or a program that does not understand our options."""
    expected = Path(sys.prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    monkeypatch.setattr(sys, "executable", executable)
    assert interpreter_path() == str(expected)
