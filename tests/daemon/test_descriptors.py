"""Ring 1: how many connections there is room for."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from mcpstated.daemon.descriptors import OWN_DESCRIPTORS, room_for_connections


@pytest.fixture(name="hard", autouse=True)
def _hard() -> Iterator[int]:
    """The system's limit; that of this process is as it was afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.requirement("C20", "P6")
def test_a_low_limit_is_raised_as_far_as_it_is_needed(hard: int) -> None:
    """Shells begin with 256 on some systems, which is less than the sessions that are promised."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))

    assert room_for_connections(300) == 300
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300 + OWN_DESCRIPTORS


def test_a_limit_that_is_high_enough_is_left_alone(hard: int) -> None:
    """Whoever set it had a reason."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, hard))

    assert room_for_connections(100) == 100
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 500


@pytest.mark.requirement("C20", "P6")
def test_what_the_daemon_needs_for_itself_is_never_given_to_connections(
    hard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that cannot open its database because of its clients serves nobody."""

    def refuse(_which: int, _limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    with monkeypatch.context() as patch:
        patch.setattr(resource, "setrlimit", refuse)
        assert room_for_connections(300) == 200 - OWN_DESCRIPTORS
