"""What every test gets: a home of its own, no settings from outside, and no daemon left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.leaks import leaks_since, resources
from support.reaper import kill_daemons_below


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give the test an empty home and take away what the caller's shell may have set."""
    for name in list(os.environ):
        if name.startswith(("MCPSTATED_", "MCPSTATE_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(autouse=True)
def _no_daemon_survives(request: pytest.FixtureRequest, _own_environment: None) -> Iterator[None]:
    """Kill every daemon that still holds a lock in one of the test's directories."""
    directories = [Path(os.environ["HOME"])]
    if "tmp_path" in request.fixturenames:
        directories.append(request.getfixturevalue("tmp_path"))
    yield
    for directory in directories:
        kill_daemons_below(directory)


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A private data directory with a name short enough for a socket beside the database."""
    directory = Path(tempfile.mkdtemp(prefix="state-", dir="/tmp"))
    yield directory
    kill_daemons_below(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail the test if it leaves descriptors, threads or child processes; ask for it before the rest."""
    before = resources()
    yield
    assert leaks_since(before) == []
