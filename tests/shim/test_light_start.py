"""Ring 4: what starting the shim pays for."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

FORBIDDEN = {
    "apsw": "the daemon's",
    "asyncio": "one poll loop is enough",
    "click": "the command line's",
    "contextlib": "pulls in functools, types and collections",
    "dataclasses": "pulls in inspect and re",
    "fastmcp": "the daemon's",
    "inspect": "large",
    "json": "only for answers in the daemon's place",
    "logging": "large, and there is next to nothing to log",
    "mcp": "the daemon's",
    "mcpstated.shim.standin": "only for answers in the daemon's place",
    "mcpstated.spawn": "only where no daemon runs",
    "pathlib": "pulls in fnmatch, re and urllib",
    "platformdirs": "the default directory is worked out without it",
    "re": "large",
    "rich": "the command line's",
    "subprocess": "large; the daemon is started with posix_spawn",
    "tempfile": "pulls in random and shutil",
    "threading": "there is one thread",
    "trio": "the daemon's",
    "typing": "large",
}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The package laid out as an installed one, for an interpreter without site packages.

    An editable installation adds an import hook to every start, which would hide what is ours.
    """
    package = tmp_path / "mcpstated"
    package.mkdir()
    for file in Path(next(iter(importlib.import_module("mcpstated").__path__))).glob("*.py"):
        (package / file.name).symlink_to(file)
    for name in ("cli", "protocol", "shim"):
        source = next(iter(importlib.import_module(f"mcpstated.{name}").__path__))
        (package / name).symlink_to(source)
    (tmp_path / "msgpack").symlink_to(Path(msgpack.__file__).parent)
    return tmp_path


@pytest.mark.requirement("P8")
def test_the_shim_imports_nothing_heavy(installed: Path) -> None:
    """P8: each of these would be paid for by every client, in time at start and in memory all day."""
    code = (
        f"import sys; sys.path.append({str(installed)!r})\n"
        "import mcpstated.cli.entry, mcpstated.shim.main\n"
        "loaded = sorted(sys.modules)\n"
        "import json; print(json.dumps(loaded))"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    loaded = set(json.loads(subprocess.check_output(command, timeout=30)))
    assert "mcpstated.shim.relay" in loaded
    assert {name: FORBIDDEN[name] for name in FORBIDDEN if name in loaded} == {}
