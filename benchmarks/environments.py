"""The installations that are measured: a wheel of this checkout, mcpstate, and server-memory.

Each lives in a folder of its own below the work directory and is kept for the next run; ours is made
anew when a source file changed. Nothing is written into the checkout.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

MCPSTATE = "mcpstate[fastmcp]==0.2.0"
SERVER_MEMORY = "@modelcontextprotocol/server-memory"
NODE_MAJOR_MIN = 18

_NOT_SOURCE = (".*", "build", "dist", "*.egg-info", "__pycache__", "node_modules", "tests", "benchmarks")
_STAMP = "installed.txt"


class CannotInstall(Exception):
    """An installation failed; the message ends with what its installer printed."""


def default_work_dir() -> Path:
    """Return the folder in the user's cache where installations are kept between runs."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "mcpstated-benchmarks"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcpstated-benchmarks"


def install_checkout(checkout: Path, work_dir: Path, python: str) -> Path:
    """Install a wheel of `checkout` and return the virtual environment's `bin` folder."""
    environment = work_dir / "mcpstated"
    return _install(
        environment, python, _fingerprint(checkout), lambda bin_dir: _install_wheel(bin_dir, checkout)
    )


def install_revision(checkout: Path, revision: str, work_dir: Path, python: str) -> Path:
    """Install a wheel of an earlier revision of `checkout` and return the environment's `bin` folder."""
    commit = _git(checkout, "rev-parse", "--short=12", f"{revision}^{{commit}}").decode().strip()

    def fill(bin_dir: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            with tarfile.open(fileobj=io.BytesIO(_git(checkout, "archive", commit))) as archive:
                archive.extractall(scratch, filter="data")
            _install_wheel(bin_dir, Path(scratch))

    return _install(work_dir / f"mcpstated-{commit}", python, commit, fill)


def install_mcpstate(work_dir: Path, python: str) -> Path:
    """Install the release that we compare with and return the virtual environment's `bin` folder."""
    return _install(work_dir / "mcpstate", python, MCPSTATE, lambda bin_dir: _pip(bin_dir, MCPSTATE))


def install_server_memory(work_dir: Path) -> Path | None:
    """Install server-memory from npm and return its program, or None where there is no Node.js for it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None or _node_major(node) < NODE_MAJOR_MIN:
        return None
    folder = work_dir / "server-memory"
    program = folder / "node_modules" / SERVER_MEMORY / "dist" / "index.js"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), SERVER_MEMORY])
    return program


def _install(environment: Path, python: str, stamp: str, fill: object) -> Path:
    assert callable(fill)
    bin_dir = environment / "bin"
    marker = environment / _STAMP
    wanted = f"{stamp}\n{python}\n"
    if marker.exists() and marker.read_text() == wanted:
        return bin_dir
    shutil.rmtree(environment, ignore_errors=True)
    environment.parent.mkdir(parents=True, exist_ok=True)
    _run([python, "-m", "venv", str(environment)])
    fill(bin_dir)
    marker.write_text(wanted)
    return bin_dir


def _install_wheel(bin_dir: Path, checkout: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source, wheels = Path(scratch, "source"), Path(scratch, "wheels")
        # Building inside the checkout would leave folders there, and pick up what older builds left.
        shutil.copytree(checkout, source, ignore=shutil.ignore_patterns(*_NOT_SOURCE))
        _run([str(bin_dir / "pip"), "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(source)])
        _pip(bin_dir, *map(str, wheels.glob("*.whl")))


def _pip(bin_dir: Path, *requirements: str) -> None:
    _run([str(bin_dir / "pip"), "install", "--quiet", "--disable-pip-version-check", *requirements])


def _fingerprint(checkout: Path) -> str:
    """Return a digest of everything that goes into a wheel."""
    digest = hashlib.sha256()
    for path in sorted(checkout.rglob("*")):
        relative = path.relative_to(checkout)
        if path.suffix not in (".py", ".toml", ".typed") or any(
            Path(part).match(pattern) for part in relative.parts for pattern in _NOT_SOURCE
        ):
            continue
        digest.update(str(relative).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _node_major(node: str) -> int:
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    major = version.strip().removeprefix("v").split(".")[0]
    return int(major) if major.isdigit() else 0


def _git(checkout: Path, *arguments: str) -> bytes:
    git = shutil.which("git")
    if git is None:
        raise CannotInstall("git is needed to read an earlier revision")
    done = subprocess.run([git, "-C", str(checkout), *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        raise CannotInstall(done.stderr.decode(errors="replace")[-4000:])
    return done.stdout


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotInstall(f"{' '.join(command)}\n{done.stdout}{done.stderr}"[-4000:])
