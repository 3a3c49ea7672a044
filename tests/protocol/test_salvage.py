"""Ring 1: the id and the method of a line of which only the ends are looked at."""

from __future__ import annotations

import json
import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol import salvage as module
from mcpstated.protocol.salvage import ENDS_BYTES, salvage
from support.json_values import values

fragments = st.lists(
    st.sampled_from(
        [
            b'"id"',
            b'"method"',
            b":",
            b",",
            b"{",
            b"}",
            b"[",
            b"]",
            b'"',
            b"\\",
            b"7",
            b'"x"',
            b" ",
            b"\xff",
            b"\x00",
        ]
    ),
    max_size=40,
).map(b"".join)
ids = st.integers() | st.text(max_size=20)


def both_ends(line: bytes) -> tuple[str | int | None, str]:
    return salvage(line[:ENDS_BYTES], line[-ENDS_BYTES:])


@pytest.mark.requirement("C36")
@given(ids, st.text(max_size=20), values, st.permutations(["id", "method", "params"]), st.integers(0, 9000))
def test_a_line_of_any_size_gives_back_its_id_and_method(
    id_: str | int, method: str, params: object, order: list[str], padding: int
) -> None:
    """C36: the client waits for its own id, whatever is in between and wherever the line was cut."""
    members = {"id": id_, "method": method, "params": [params, "x" * padding]}
    line = json.dumps({name: members[name] for name in order}, ensure_ascii=bool(padding % 2)).encode(
        "utf-8", "surrogatepass"
    )

    assert both_ends(line) == (id_, method)


@pytest.mark.requirement("C36")
@given(values, st.integers(0, 9000))
def test_members_further_inside_are_never_taken_for_the_lines_own(inner: object, padding: int) -> None:
    """An answer under a wrong id would be worse than one under none."""
    deep = {"id": 1, "method": "m", "x": [{"id": 2, "y": inner}, "x" * padding, {"id": 3, "method": "n"}]}
    for line in ({"params": deep}, {"a": [deep, deep], "b": deep}, [deep], [[{"id": 4}], deep]):
        assert both_ends(json.dumps(line).encode()) == (None, "")


@pytest.mark.requirement("C36")
@given(ids, st.integers(1, 40))
def test_an_id_that_is_cut_is_not_believed(id_: str | int, place: int) -> None:
    """The first half of a number is another number."""
    line = json.dumps({"id": id_, "more": 1}).encode()
    end = line.rindex(b", ")
    assert salvage(line[: min(place, end)], b"") == (None, "")


@pytest.mark.requirement("P7")
@given(st.binary(max_size=300) | fragments, st.binary(max_size=300) | fragments)
def test_any_two_ends_give_an_answer_and_nothing_else(head: bytes, tail: bytes) -> None:
    """P7: it is made for lines that nobody could read."""
    id_, method = salvage(head, tail)
    assert id_ is None or type(id_) is str or type(id_) is int
    assert type(method) is str


@pytest.mark.requirement("C11", "P7")
@pytest.mark.parametrize("opening", [b"[", b'{"x":'])
def test_a_tail_nested_too_deeply_to_be_parsed_has_no_members(opening: bytes) -> None:
    """The parser gives up; the caller gets the answer that there is none."""
    assert salvage(b"", b'"id":' + opening * 50_000) == (None, "")


HOSTILE = {
    "quotes": lambda n: b'"' * n,
    "open string": lambda n: b'"' + b"x" * n,
    "backslashes": lambda n: b'"' + b"\\" * n,
    "escaped quotes": lambda n: b'"\\' * n,
    "open brackets": lambda n: b"[" * n,
    "open objects": lambda n: b'{"id":' * n,
    "closed brackets": lambda n: b"]" * n,
    "digits": lambda n: b'{"id":' + b"9" * n + b",",
    "names": lambda n: b'"id"' * n,
    "spaces": lambda n: b" " * n,
    "zeros": lambda n: b"\x00" * n,
}


def steps(head: bytes, tail: bytes) -> int:
    """Return how many lines of Python it takes, plus the bytes that go into parsers written in C."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal count
        if frame.f_code.co_filename != module.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        salvage(head, tail)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.requirement("P7")
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_ends_cost_in_proportion_to_their_size(kind: str) -> None:
    """Twice the bytes mean at most twice the steps and a little."""
    small, large = HOSTILE[kind](1_000), HOSTILE[kind](4_000)
    assert steps(large, large) <= 4 * steps(small, small) + 100


@pytest.mark.requirement("P7")
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_byte_is_looked_at_as_the_beginning_of_more_than_one_lexeme(kind: str) -> None:
    """Lexemes do not overlap, so the scan is over when the bytes are: no quote is tried twice."""
    data = HOSTILE[kind](50_000)
    matches = list(module._LEXEMES.finditer(data))
    assert sum(len(match.group()) for match in matches) == len(data.replace(b" ", b""))
