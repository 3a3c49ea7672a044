from __future__ import annotations

import math
from typing import Any

import pytest

from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.limits import Limits
from mcpstated.surface.coercion import Coercion
from mcpstated.surface.declaration import TOOLS

SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}


def coerce(tool: str, **given: Any) -> Any:
    return Coercion(SCHEMAS[tool], Limits())(given)


@pytest.mark.requirement("C08")
@pytest.mark.parametrize("value", ["3", 3.0, 3, " 3 ", "3.0"])
def test_a_whole_number_is_taken_in_any_spelling(value: object) -> None:
    """Models quote numbers and some languages only have floats."""
    version = coerce("state_save", state={}, expect_version=value).find_integer("expect_version")
    assert version == 3
    assert type(version) is int


@pytest.mark.requirement("C08")
@pytest.mark.parametrize(
    "value",
    [
        "3.5",
        3.5,
        True,
        False,
        "null",
        "",
        "three",
        "0x3",
        "٣",
        "1e0",
        "9" * 30,
        1e300,
        math.inf,
        math.nan,
        [],
        [3],
        {},
    ],
)
def test_what_is_no_whole_number_is_refused_by_name(value: object) -> None:
    """A version check on a guess would be no check."""
    with pytest.raises(InvalidInput) as refused:
        coerce("state_save", state={}, expect_version=value)
    assert refused.value.details == {"field": "expect_version"}
    assert refused.value.message.startswith("expect_version must be a whole number")


@pytest.mark.requirement("C08")
def test_null_means_absent() -> None:
    """Some models fill every optional parameter with null."""
    arguments = coerce("state_save", state={}, expect_version=None, ttl_days=None, handle=None, kind=None)
    assert "expect_version" not in arguments
    assert arguments.find_integer("expect_version") is None
    assert arguments.find_number("ttl_days") is None


@pytest.mark.requirement("C08")
@pytest.mark.parametrize(
    ("value", "meaning"), [("false", False), ("False", False), ("true", True), (False, False), (None, False)]
)
def test_a_flag_may_come_as_text(value: object, meaning: bool) -> None:
    """The text "false" is true in most languages, which is never what was meant."""
    assert coerce("state_patch", handle="h", ops=[], return_state=value).flag("return_state") is meaning


@pytest.mark.requirement("C08")
@pytest.mark.parametrize("value", [1, 0, "1", "yes", "", "null", []])
def test_a_flag_is_not_guessed(value: object) -> None:
    with pytest.raises(InvalidInput, match="return_state must be true or false"):
        coerce("state_patch", handle="h", ops=[], return_state=value)


@pytest.mark.requirement("C08")
@pytest.mark.parametrize("value", [123, 1.5, True, {}, ["research"]])
def test_text_must_be_text(value: object) -> None:
    """A kind of 123 is refused rather than spelled: a handle named by accident stays for ever."""
    with pytest.raises(InvalidInput, match="kind must be text"):
        coerce("state_save", kind=value, state={})


@pytest.mark.requirement("C24")
@pytest.mark.parametrize(
    ("value", "days"), [("7", 7.0), ("0.5", 0.5), ("1e3", 1000.0), (7, 7), (0.25, 0.25), (-1, -1)]
)
def test_a_number_may_come_as_text(value: object, days: float) -> None:
    """The stated rule for ttl_days "7": it is the number 7. The range is checked by the store."""
    assert coerce("state_touch", handle="h", ttl_days=value).find_number("ttl_days") == days


@pytest.mark.requirement("C24")
@pytest.mark.parametrize("value", [True, "inf", "nan", "NaN", "1_000", "", "7 days", "0x7", [7], {}])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="ttl_days must be a number"):
        coerce("state_touch", handle="h", ttl_days=value)


@pytest.mark.requirement("C07")
def test_an_object_that_comes_as_json_text_is_decoded_once() -> None:
    """Models encode nested arguments twice now and then."""
    arguments = coerce("state_save", state='{"a": 1, "note": "{\\"b\\": 2}"}')
    assert arguments.document("state") == {"a": 1, "note": '{"b": 2}'}


@pytest.mark.requirement("C07")
def test_text_inside_an_object_stays_as_it_is() -> None:
    """What looks like JSON inside a state is text that somebody wanted to keep."""
    state = {"note": '{"a":1}', "list": "[1]", "nothing": "null", "number": "1"}
    assert coerce("state_save", state=state).document("state") is state


@pytest.mark.requirement("C07")
def test_operations_that_come_as_json_text_are_decoded_once() -> None:
    op = {"op": "set_key", "path": "", "key": "k", "value": "[1]"}
    text = '{"op":"set_key","path":"","key":"k","value":"[1]"}'
    assert coerce("state_patch", handle="h", ops=f"[{text}]").items("ops") == [op]
    assert coerce("state_patch", handle="h", ops=[text]).items("ops") == [op]
    assert coerce("state_patch", handle="h", ops=[op]).items("ops") == [op]


@pytest.mark.requirement("C07")
def test_only_one_level_of_json_text_is_decoded() -> None:
    """Text in text in text is not peeled until something fits."""
    with pytest.raises(InvalidInput, match="state must be a JSON object"):
        coerce("state_save", state='"{\\"a\\": 1}"')
    inner = coerce("state_patch", handle="h", ops='["{\\"op\\": \\"append\\"}"]').items("ops")
    assert inner == ['{"op": "append"}']


@pytest.mark.requirement("C07", "C11")
@pytest.mark.parametrize(
    "text",
    ["", "hello", "[1]", "null", "1", "{", '{"a": NaN}', "[" * 100_000, '{"a":' * 129 + "1" + "}" * 129],
    ids=["empty", "word", "array", "null", "number", "cut", "nan", "abyss", "too deep"],
)
def test_text_that_is_no_json_object_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        coerce("state_save", state=text)
    assert refused.value.details == {"field": "state"}


@pytest.mark.requirement("C06")
def test_unknown_arguments_are_ignored_and_named() -> None:
    """Clients add arguments of their own to every tool."""
    arguments = coerce("state_save", state={}, task_progress="- [ ] x", zzz=1)
    assert arguments.ignored == ("task_progress", "zzz")
    assert "task_progress" not in arguments


@pytest.mark.requirement("C06", "P6")
def test_names_of_ignored_arguments_are_bounded() -> None:
    """A reply must not repeat a megabyte, nor anything that cannot be encoded."""
    arguments = coerce(
        "state_save", state={}, **{"q" * 10_000: 1, "\ud800": 1, **{f"q{i}q": 1 for i in range(100)}}
    )
    assert len(arguments.ignored) == 20
    assert all(len(name.encode()) <= 180 for name in arguments.ignored)


@pytest.mark.requirement("C06")
@pytest.mark.parametrize("name", ["expected_verison", "expect_verison", "expected_version", "expectVersion"])
def test_a_misspelt_parameter_is_refused_and_named(name: str) -> None:
    """Ignoring it would be an overwrite that nobody asked for."""
    with pytest.raises(InvalidInput) as refused:
        coerce("state_save", handle="h", state={}, **{name: 3})
    assert refused.value.details == {"field": "expect_version"}
    assert f'"{name}"' in refused.value.message
    assert '"expect_version"' in refused.value.message


@pytest.mark.requirement("C06")
def test_a_misspelt_parameter_beside_the_right_one_is_only_ignored() -> None:
    arguments = coerce("state_save", handle="h", state={}, expect_version=3, expected_version=4)
    assert arguments.find_integer("expect_version") == 3
    assert arguments.ignored == ("expected_version",)


@pytest.mark.requirement("C06")
def test_a_misspelt_parameter_that_is_null_is_only_ignored() -> None:
    """Null says nothing, under whatever name."""
    assert coerce("state_load", handle="h", maxBytes=None).ignored == ("maxBytes",)


def test_a_required_parameter_that_is_absent_or_null_is_named() -> None:
    for given in ({}, {"handle": None}):
        with pytest.raises(InvalidInput) as refused:
            coerce("state_load", **given)
        assert refused.value.details == {"field": "handle"}


def test_a_required_parameter_under_another_name_is_asked_for_by_both_names() -> None:
    """Too far off to be guessed, but the model can see what became of its argument."""
    with pytest.raises(InvalidInput, match=r'^ops is required\. "operations" is not known here\.$'):
        coerce("state_patch", handle="h", operations=[])


@pytest.mark.requirement("P6")
def test_an_error_never_shows_a_huge_value() -> None:
    """Spelling a long integer costs time and, beyond a bound of Python's, raises."""
    for given in ({"kind": 10**5000}, {"kind": {"a": 10**5000}}, {"expect_version": "9" * 10_000}):
        with pytest.raises(InvalidInput) as refused:
            coerce("state_save", state={}, **given)
        assert len(refused.value.message) < 200
