"""Ring 1: errors cross the wire and come back as themselves."""

from __future__ import annotations

import re

import pytest

from mcpstated.protocol import errors
from mcpstated.protocol.errors import (
    ERRORS,
    InternalError,
    InvalidInput,
    McpStateError,
    StaleWrite,
    from_payload,
    to_payload,
)


def subclasses(cls: type) -> set[type]:
    return {cls, *(found for direct in cls.__subclasses__() for found in subclasses(direct))}


def test_the_list_holds_every_error_and_every_code_once() -> None:
    """A code is looked up in that list alone; two errors with one code could not be told apart."""
    defined = {
        cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, McpStateError)
    }

    assert defined - {McpStateError} == set(ERRORS)
    assert len({error.code for error in ERRORS}) == len(ERRORS)
    for error in ERRORS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", error.code)
        assert error.__doc__


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_comes_back_with_class_message_and_details(error: type[McpStateError]) -> None:
    """A caller handles a remote error as it would a local one."""
    sent = error("Do this instead.", handle="h", self=3, current={"version": 2})
    payload = to_payload(sent)
    back = from_payload(payload)

    assert payload == {
        "code": error.code,
        "message": "Do this instead.",
        "handle": "h",
        "self": 3,
        "current": {"version": 2},
    }
    assert type(back) is error
    assert (back.message, back.details, str(back)) == (sent.message, sent.details, str(sent))


@pytest.mark.parametrize(
    "fault", [KeyError("/home/ada/secret"), OSError(28, "disk"), RuntimeError("password=x")]
)
def test_a_foreign_exception_shows_nothing_of_itself(fault: Exception) -> None:
    """Its text may hold a path, a credential or a state; it belongs into the log."""
    payload = to_payload(fault)

    assert payload["code"] == "internal_error"
    assert set(payload) == {"code", "message"}
    assert not any(word in str(payload) for word in ("secret", "disk", "password"))


@pytest.mark.parametrize(
    "payload", [{}, {"code": "from_the_future", "message": "m"}, {"code": None}, {"code": ["x"]}]
)
def test_an_unknown_code_is_an_internal_error(payload: dict[str, object]) -> None:
    """A newer daemon may know more errors; an older client must still get an exception."""
    error = from_payload(payload)

    assert type(error) is InternalError
    assert error.message == payload.get("message", "")


def test_invalid_input_is_a_value_error() -> None:
    """Programs that know nothing of this library catch it too."""
    with pytest.raises(ValueError, match="must be"):
        raise InvalidInput("kind must be text.", field="kind")
    assert not issubclass(StaleWrite, ValueError)
