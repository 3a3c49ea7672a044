"""Ring 1: both spellings of a path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol.documents import Json, is_identical
from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.pointer import parse_path, resolve, spell_pointer
from support.json_values import documents, keys, places

DOCUMENT: dict[str, Json] = {
    "profile": {"tags": ["x", {"deep": True}], "name": "Ada"},
    "a/b": 1,
    "~1": 2,
    "": {"": 3},
    "a.b": 4,
    "0": 5,
    "-": 6,
    "ключ": 7,
    "empty": {},
    "none": [],
}


@pytest.mark.requirement("C29")
@pytest.mark.parametrize(
    ("path", "segments"),
    [
        ("", ()),
        ("profile", ("profile",)),
        ("profile.tags", ("profile", "tags")),
        ("a..b", ("a", "", "b")),
        (".", ("", "")),
        ("~1", ("~1",)),
        ("/", ("",)),
        ("//", ("", "")),
        ("/profile/tags/0", ("profile", "tags", "0")),
        ("/a~1b", ("a/b",)),
        ("/~01", ("~1",)),
        ("/a.b", ("a.b",)),
        ("/é", ("é",)),
    ],
)
def test_a_leading_slash_makes_a_pointer_and_anything_else_is_dotted(
    path: str, segments: tuple[str, ...]
) -> None:
    """RFC 6901, section 4, for pointers: ~1 is decoded before ~0."""
    assert parse_path(path) == segments


@pytest.mark.requirement("C29")
@pytest.mark.parametrize("path", ["/~", "/a~", "/~2", "/a/~x/b", "/~~0"])
def test_a_tilde_in_a_pointer_must_be_an_escape(path: str) -> None:
    """RFC 6901 knows ~0 and ~1 only; guessing would hit another key."""
    with pytest.raises(InvalidInput, match="~0") as caught:
        parse_path(path)
    assert caught.value.details == {"field": "path"}


@pytest.mark.parametrize("path", [None, 1, True, ["a"], b"a"])
def test_a_path_is_text(path: Any) -> None:
    """Whatever else comes is one clear error."""
    with pytest.raises(InvalidInput, match="path must be text"):
        parse_path(path)


@given(st.lists(keys, max_size=5))
def test_a_spelled_pointer_leads_back_to_its_segments(segments: list[str]) -> None:
    """Any key can be reached by a pointer."""
    assert parse_path(spell_pointer(segments)) == tuple(segments)


@given(documents)
def test_every_value_is_reached_by_its_pointer(document: dict[str, Any]) -> None:
    """Outlines hand out pointers; each must load exactly the part that it names."""
    for steps, value in places(document):
        assert resolve(document, spell_pointer(steps)) is value


@pytest.mark.requirement("C29")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("", DOCUMENT),
        ("profile.name", "Ada"),
        ("/profile/tags/1/deep", True),
        ("/a~1b", 1),
        ("a/b", 1),
        ("/~01", 2),
        ("~1", 2),
        ("/", {"": 3}),
        ("//", 3),
        (".", 3),
        ("/a.b", 4),
        ("0", 5),
        ("/0", 5),
        ("-", 6),
        ("/-", 6),
        ("ключ", 7),
    ],
)
def test_awkward_keys_are_reached_exactly(path: str, value: Json) -> None:
    """The exact target or an error, never something near it."""
    assert is_identical(resolve(DOCUMENT, path), value)


@pytest.mark.requirement("C29", "C28")
@pytest.mark.parametrize(
    ("path", "hints"),
    [
        ("profil", ['the root has no key "profil"', '"profile"', '"empty"']),
        ("profile.tag", ['"profile" has no key "tag"', '"tags", "name"']),
        ("/profile/tag", ['"/profile" has no key "tag"', '"tags", "name"']),
        ("a.b", ['the root has no key "a"']),
        ("profile.tags.0", ["list of 2 items", "/profile/tags/0"]),
        ("/profile/tags/2", ['"/profile/tags" is a list of 2 items', "0 to 1", '"2"']),
        ("/profile/tags/-", ['"-"']),
        ("/profile/tags/-1", ['"-1"']),
        ("/profile/tags/01", ['"01"']),
        ("/profile/tags/+1", ['"+1"']),
        ("/profile/tags/1.0", ['"1.0"']),
        ("/profile/tags/ 1", ['" 1"']),
        ("/profile/tags/\u0661", ["list of 2 items"]),
        ("/profile/tags/" + "9" * 5_000, ["list of 2 items"]),
        ("/profile/name/0", ['"/profile/name" holds text']),
        ("empty.x", ['"empty" is an empty object']),
        ("/none/0", ["list of 0 items"]),
    ],
)
def test_a_dead_end_names_the_deepest_part_that_exists(path: str, hints: list[str]) -> None:
    """A model repairs its call from the message alone, without loading the whole document."""
    with pytest.raises(InvalidInput) as caught:
        resolve(DOCUMENT, path)

    assert caught.value.details == {"field": "path"}
    for hint in hints:
        assert hint in caught.value.message


@pytest.mark.requirement("C28", "P6")
def test_the_message_is_short_however_long_keys_and_path_are() -> None:
    """An error is read by a model too; it must not be the flood that it warns of."""
    document: dict[str, Json] = {f"{number}" * 500: 1 for number in range(1_000)}

    with pytest.raises(InvalidInput) as caught:
        resolve(document, "x" * 100_000)

    assert len(caught.value.message) < 1_000
    assert "more" in caught.value.message


def test_the_message_can_always_be_encoded() -> None:
    """A path may hold anything, and comes back in the error; half a character would break the reply."""
    with pytest.raises(InvalidInput) as caught:
        resolve({"a": 1}, "x\ud800\n\x1b[31m")

    caught.value.message.encode()
    assert caught.value.message.isprintable()
