from __future__ import annotations

import pytest

from mcpstated.surface.near_miss import find_missed

SAVE = ["kind", "state", "handle", "expect_version", "ttl_days", "title"]


@pytest.mark.requirement("C06")
@pytest.mark.parametrize(
    "name",
    [
        "expected_verison",
        "expect_verison",
        "expected_version",
        "expectVersion",
        "EXPECT_VERSION",
        "expect-version",
        "version",
        "expect",
    ],
)
def test_a_name_near_expect_version_is_recognised(name: str) -> None:
    """Dropping it would turn a versioned save into an unversioned one."""
    assert find_missed(name, SAVE) == "expect_version"


@pytest.mark.requirement("C06")
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("opts", "ops"),
        ("op", "ops"),
        ("handleId", "handle"),
        ("handel", "handle"),
        ("return", "return_state"),
    ],
)
def test_a_slip_or_a_missing_word_is_recognised(name: str, meant: str) -> None:
    assert find_missed(name, ["handle", "ops", "return_state"]) == meant


@pytest.mark.requirement("C06")
@pytest.mark.parametrize(
    "name",
    [
        "task_progress",
        "security_risk",
        "explanation",
        "request_heartbeat",
        "waitForPreviousTools",
        "toolSummary",
        "sessionId",
        "reason",
        "_",
        "",
        pytest.param("x" * 10_000, id="huge"),
        pytest.param("\ud800", id="surrogate"),
    ],
)
def test_what_clients_add_of_their_own_is_no_near_miss(name: str) -> None:
    """Such arguments come with every call of some clients, so refusing them would lock those out."""
    assert find_missed(name, SAVE) is None


@pytest.mark.requirement("C06")
def test_a_parameter_that_was_given_cannot_be_missed() -> None:
    """The candidates are only what is absent: beside the right name a wrong one does no harm."""
    assert find_missed("expected_version", ["kind", "title"]) is None
