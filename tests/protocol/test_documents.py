"""Ring 1: JSON text in and out, sizes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol.documents import check_document, dump, is_identical, measure, parse, size_of
from mcpstated.protocol.errors import InvalidInput, StateTooLarge
from mcpstated.protocol.limits import Limits
from support.json_values import documents, values

LIMITS = Limits()


def nested(depth: int, kind: type = list) -> Any:
    """Return containers `depth` deep without recursion."""
    value: Any = 1
    for level in range(depth):
        is_list = kind is list or (kind is tuple and level % 2)
        value = [value] if is_list else {"a": value}
    return value


def nested_text(depth: int, kind: type) -> str:
    pairs = {list: ("[", "]"), dict: ('{"a":', "}")}
    opening, closing = pairs[kind]
    return opening * depth + "1" + closing * depth


@given(values)
def test_a_value_comes_back_from_its_text_exactly(value: Any) -> None:
    """Numbers keep their type and sign, keys their order, texts every character."""
    text = dump(value)

    assert is_identical(parse(text, field="state", limits=LIMITS), value)
    assert is_identical(parse(text.encode(), field="state", limits=LIMITS), value)


@given(values)
def test_sizes_are_those_of_the_compact_text(value: Any) -> None:
    """The limit is one of UTF-8 bytes, whichever function looks at it."""
    expected = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())

    assert measure(value, field="state", limits=LIMITS) == size_of(value) == expected


@pytest.mark.parametrize(
    "text",
    [
        "-0.0",
        "0.0",
        "0",
        "1.0",
        "1",
        "1e+300",
        "5e-324",
        "123456789012345678901",
        "9" * 4300,
        "-" + "9" * 4300,
    ],
)
def test_numbers_keep_their_spelling(text: str) -> None:
    """What one client wrote as 1.0 must not reach another as 1; integers are exact (design, limits)."""
    assert dump(parse(text, field="state", limits=LIMITS)) == text


@pytest.mark.requirement("C33")
def test_line_separators_and_nul_are_ordinary_characters() -> None:
    """Text is data: U+2028, U+2029, U+0085 and NUL come back as they were."""
    document = {"t": "a\u2028b\u2029c\u0085d\x00e\U0001f600"}

    assert parse(dump(document), field="state", limits=LIMITS) == document
    assert dump(document) == '{"t":"a\u2028b\u2029c\u0085d\\u0000e\U0001f600"}'


def test_escaped_surrogate_pairs_are_one_character() -> None:
    """JSON in ASCII writes characters beyond U+FFFF that way; only a lone half is refused."""
    assert parse('"\\ud83d\\ude00"', field="state", limits=LIMITS) == "\U0001f600"


def test_of_a_repeated_key_the_last_value_counts() -> None:
    """One stated rule (design, limits)."""
    assert parse('{"a":1,"b":2,"a":3}', field="state", limits=LIMITS) == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON"),
        ("{bad", "not valid JSON"),
        ('{"a":1,}', "not valid JSON"),
        ('"a\nb"', "not valid JSON"),
        ("\ufeff{}", "not valid JSON"),
        ("NaN", "finite"),
        ("[-Infinity]", "finite"),
        ('{"a":[1e400]}', "finite"),
        ("9" * 4301, "4300 digits"),
        ("[-" + "9" * 4301 + "]", "4300 digits"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udfff":1}', "surrogate"),
        ('"\ud800"', "UTF-8"),
        (b'"\xff"', "UTF-8"),
        (b'"\xed\xa0\x80"', "UTF-8"),
        (None, "JSON text"),
        (5, "JSON text"),
    ],
)
def test_text_that_is_no_document_is_refused_by_name(text: Any, reason: str) -> None:
    """Each refusal is one error that names the argument and says what is wrong."""
    with pytest.raises(InvalidInput, match=reason) as caught:
        parse(text, field="ops", limits=LIMITS)

    assert caught.value.details == {"field": "ops"}
    assert caught.value.message.startswith("ops ")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [float("nan")]}, "/a/0"),
        ({"a": float("inf")}, "/a"),
        ({"a": {1: 2}}, "/a"),
        ({"a": {None: 2}}, "/a"),
        ({"a": {True: 2}}, "/a"),
        ({"a": (1, 2)}, "/a"),
        ({"a": {"b/c": {1, 2}}}, "/a/b~1c"),
        ({"a": b"x"}, "/a"),
        ({"a": object()}, "/a"),
        ({"a": [0, "\ud800"]}, "/a/1"),
        ({"a": {"\udc00": 1}}, "/a"),
        ({"a": 10**4300}, "/a"),
        ({"a": -(10**4300)}, "/a"),
    ],
)
def test_a_python_value_that_is_not_json_is_refused_with_its_place(value: Any, place: str) -> None:
    """The library takes Python values; the caller must find the wrong one among thousands."""
    with pytest.raises(InvalidInput, match=f'at "{place}"') as caught:
        measure(value, field="state", limits=LIMITS)

    assert caught.value.details == {"field": "state"}


@pytest.mark.parametrize("kind", [list, dict, tuple])
@pytest.mark.parametrize("depth", [100, 128])
@pytest.mark.requirement("C11")
def test_nesting_up_to_the_limit_is_taken(depth: int, kind: type) -> None:
    """The root counts as one level, arrays and objects alike."""
    value = nested(depth, kind)

    assert measure(value, field="state", limits=LIMITS) == size_of(value)
    assert parse(dump(value), field="state", limits=LIMITS) == value


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("depth", [129, 500, 1_000, 100_000])
@pytest.mark.requirement("C11")
def test_deeper_nesting_is_invalid_input_and_never_a_crash(depth: int, kind: type) -> None:
    """Deep input must not reach the interpreter's recursion limit, in either direction."""
    for refused in (
        lambda: measure(nested(depth, kind), field="state", limits=LIMITS),
        lambda: parse(nested_text(depth, kind), field="state", limits=LIMITS),
    ):
        with pytest.raises(InvalidInput, match="deeper than 128 levels") as caught:
            refused()
        assert caught.value.details == {"field": "state"}


def test_unclosed_brackets_are_refused_however_many() -> None:
    """A decoder must not run out of stack before it sees the end."""
    with pytest.raises(InvalidInput):
        parse("[" * 1_000_000, field="state", limits=LIMITS)


def test_a_value_that_contains_itself_is_refused() -> None:
    """It has no end; finding that out must have one."""
    value: dict[str, Any] = {}
    value["self"] = [value, value, value]

    with pytest.raises(InvalidInput, match="deeper than 128 levels"):
        measure(value, field="state", limits=LIMITS)
    with pytest.raises(InvalidInput):
        dump(value)


def test_one_part_in_two_places_is_no_cycle() -> None:
    """Python values may share parts; JSON text just repeats them."""
    part = {"x": [1]}

    assert measure({"a": part, "b": part}, field="state", limits=LIMITS) == len(
        '{"a":{"x":[1]},"b":{"x":[1]}}'
    )


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", [], [{}]])
def test_a_document_must_be_an_object(value: Any) -> None:
    """Handles hold objects, so that patches by key always have a root."""
    with pytest.raises(InvalidInput, match="state must be a JSON object") as caught:
        check_document(value, limits=LIMITS)

    assert caught.value.details == {"field": "state"}


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", "\n"])
@pytest.mark.requirement("P6")
def test_the_size_limit_counts_bytes_and_is_exact(character: str) -> None:
    """At the limit is taken, one byte above is not, whatever the characters cost."""
    empty = size_of({"t": ""})
    step = size_of(character) - 2
    document = {"t": character * ((1_000 - empty) // step)}
    document["t"] += "x" * (1_000 - size_of(document))
    limits = Limits(max_state_bytes=1_000)

    assert check_document(document, limits=limits) == 1_000
    document["t"] += "x"
    with pytest.raises(StateTooLarge) as caught:
        check_document(document, limits=limits)
    assert caught.value.details == {"size_bytes": 1_001, "limit_bytes": 1_000}


@pytest.mark.parametrize(
    "value", [{"a": "\ud800"}, {"a": object()}, {(1,): 1}, float("nan"), nested(100_000)]
)
def test_dump_refuses_what_has_no_text(value: Any) -> None:
    """A bad value in a program's hands is that program's error, with its own name, not a builtin one."""
    with pytest.raises(InvalidInput):
        dump(value)


def test_a_lower_limit_of_digits_is_kept_too() -> None:
    """The interpreter stops at 4,300 digits by itself; a smaller setting must not depend on that."""
    limits = Limits(max_integer_digits=10)

    assert parse("[9999999999,-9999999999]", field="state", limits=limits) == [9999999999, -9999999999]
    for text in ("10000000000", '{"a":-10000000000}'):
        with pytest.raises(InvalidInput, match="10 digits"):
            parse(text, field="state", limits=limits)
        with pytest.raises(InvalidInput, match="10 digits"):
            measure(json.loads(text), field="state", limits=limits)


@given(st.text(max_size=30) | st.binary(max_size=30))
def test_no_text_makes_parse_fail_in_another_way(text: str | bytes) -> None:
    """Whatever comes over the wire is a value or an `InvalidInput`."""
    try:
        value = parse(text, field="state", limits=LIMITS)
    except InvalidInput:
        return
    assert measure(value, field="state", limits=LIMITS) == size_of(value)


@given(documents)
def test_a_valid_document_weighs_the_same_as_value_and_as_text(document: dict[str, Any]) -> None:
    """The daemon measures what it parsed, the library what it is given."""
    assert check_document(document, limits=LIMITS) == len(dump(document).encode())
