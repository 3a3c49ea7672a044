"""Moments as programs read them."""

from __future__ import annotations

from mcpstated.protocol.moments import moment


def test_a_moment_is_utc_with_milliseconds_and_a_z() -> None:
    """Readers that take times apart by position must find the same form everywhere, whole seconds too."""
    assert moment(1_800_000_000.25) == "2027-01-15T08:00:00.250Z"
    assert moment(1_800_000_000) == "2027-01-15T08:00:00.000Z"
    assert moment(None) is None
