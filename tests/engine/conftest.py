"""An engine over a real SQLite file in the test's own directory, with time that only the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcpstated.daemon.testing import RunningEngine, open_engine
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.store import Caller


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database goes; nothing is there yet."""
    return tmp_path / "store" / "state.db"


@pytest.fixture
async def engine(path: Path) -> AsyncIterator[RunningEngine]:
    """A running engine with the default limits."""
    async with open_engine(path) as running:
        yield running


@pytest.fixture(params=[Limits(), Limits(cache_bytes=0)], ids=["hot", "cold"])
async def either(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[RunningEngine]:
    """A running engine that keeps documents in memory, and one that has to load them each time."""
    async with open_engine(path, limits=request.param) as running:
        yield running


@pytest.fixture
def alice() -> Caller:
    """A user."""
    return Caller("alice", "laptop/claude-code")


@pytest.fixture
def bob() -> Caller:
    """Another user."""
    return Caller("bob", "desk/cursor")
