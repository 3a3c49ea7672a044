"""Ring 1: what holds for every patch, drawn at random and held against a slow, plain model."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol.difference import MOST_OPERATIONS, difference
from mcpstated.protocol.documents import dump, is_identical, same, size_of
from mcpstated.protocol.errors import PatchError
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.patches import (
    Append,
    DelKey,
    Merge,
    Operation,
    Replace,
    SetKey,
    apply,
    operations_from_log,
    operations_to_log,
    replay,
)
from mcpstated.protocol.pointer import resolve
from support.json_values import documents, edited, keys, operations_for, values

LIMITS = Limits()
BALLAST = "x" * 100_000
"""Makes any few operations smaller than the document."""
patches = documents.flatmap(lambda document: st.tuples(st.just(document), operations_for(document)))
pairs = documents.flatmap(lambda document: st.tuples(st.just(document), edited(document) | documents))


def model(document: dict[str, Any], operations: list[Operation]) -> dict[str, Any]:
    """Apply operations to a deep copy, one plain statement each."""
    result = copy.deepcopy(document)
    for operation in operations:
        target: Any = resolve(result, operation.path)
        if isinstance(operation, Append):
            target.append(copy.deepcopy(operation.value))
        elif isinstance(operation, DelKey):
            target.pop(operation.key, None)
        elif isinstance(operation, SetKey):
            set_in_model(target, operation.key, operation.value)
        elif isinstance(operation, Merge):
            for key, value in operation.mapping.items():
                set_in_model(target, key, value)
    return result


def set_in_model(target: dict[str, Any], key: str, value: Any) -> None:
    if key not in target or not same(target[key], value):
        target[key] = copy.deepcopy(value)


@pytest.mark.requirement("P3", "C29")
@given(patches)
def test_a_patch_does_what_the_model_does(drawn: tuple[dict[str, Any], list[Operation]]) -> None:
    """Path copying and counted sizes must not show: same content, true size, input as it was."""
    document, operations = drawn
    before = copy.deepcopy(document)
    sent = copy.deepcopy(operations)
    try:
        patched = apply(document, size_of(document), operations, limits=LIMITS)
    except PatchError:
        return
    finally:
        assert is_identical(document, before)
        assert operations == sent

    assert is_identical(patched.document, model(document, operations))
    assert patched.size_bytes == size_of(patched.document)
    assert patched.is_changed == (not is_identical(patched.document, before))
    assert (patched.document is document) == (not patched.is_changed)


@pytest.mark.requirement("P1")
@given(patches)
def test_the_log_of_a_patch_rebuilds_its_document(drawn: tuple[dict[str, Any], list[Operation]]) -> None:
    """What is stored is the effective operations; replay after a restart must give the same bytes."""
    document, operations = drawn
    try:
        patched = apply(document, size_of(document), operations, limits=LIMITS)
    except PatchError:
        return
    stored = operations_from_log(operations_to_log(patched.effective))

    rebuilt, size_bytes = replay(copy.deepcopy(document), size_of(document), stored)
    assert dump(rebuilt) == dump(patched.document)
    assert size_bytes == patched.size_bytes


@pytest.mark.requirement("P4")
@given(documents, values, values)
def test_patches_to_different_places_give_the_same_content_in_any_order(
    document: dict[str, Any], first: Any, second: Any
) -> None:
    """That is why they need no version: whoever comes second loses nothing."""
    start = {**document, "left": [], "right": {}}
    one = [Append("left", first), SetKey("right", "one", first), Merge({"mine": first})]
    other = [SetKey("right", "other", second), DelKey("", "absent"), Merge({"theirs": second})]

    forth = replay(start, size_of(start), [*one, *other])
    back = replay(start, size_of(start), [*other, *one])
    assert same(forth[0], back[0])
    assert forth[1] == back[1]


@pytest.mark.requirement("P4")
@given(st.lists(st.integers(), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_appends_in_any_order_keep_every_item(items: list[int], random: Any) -> None:
    """Order follows arrival, but none is lost."""
    shuffled = items[:]
    random.shuffle(shuffled)
    document, _ = replay({"l": []}, 8, [Append("l", item) for item in shuffled])

    assert document == {"l": shuffled}


@pytest.mark.requirement("P3")
@given(pairs, st.sampled_from(["", BALLAST]))
def test_a_difference_leads_to_the_new_document_exactly(
    drawn: tuple[dict[str, Any], dict[str, Any]], ballast: str
) -> None:
    """A save may be stored as its difference: key order and number types must come back too."""
    old, new = ({**document, "ballast": ballast} for document in drawn)
    before = dump(old), dump(new)
    operations = difference(old, new)

    assert (dump(old), dump(new)) == before
    if operations is None:
        assert not ballast or list(old) != list(new)
        return
    stored = operations_from_log(operations_to_log(operations))
    rebuilt, size_bytes = replay(old, size_of(old), stored)
    assert dump(rebuilt) == dump(new)
    assert size_bytes == size_of(new)
    assert (operations == ()) == is_identical(old, new)
    assert len(operations) <= MOST_OPERATIONS
    if operations:
        assert size_of(operations_to_log(operations)) < size_of(new)  # type: ignore[arg-type]


@given(documents, st.lists(st.tuples(keys, values), max_size=3))
def test_a_big_document_with_few_edits_always_has_a_difference(
    document: dict[str, Any], edits: list[tuple[str, Any]]
) -> None:
    """Otherwise the test above could pass by answering None."""
    old = {"ballast": BALLAST, **document}
    new = {**old, **dict(edits)}
    operations = difference(old, new)

    assert operations is not None
    assert dump(replay(old, size_of(old), operations)[0]) == dump(new)


@given(patches)
def test_the_difference_of_a_patch_is_as_good_as_the_patch(
    drawn: tuple[dict[str, Any], list[Operation]],
) -> None:
    """Patches share parts between versions, and the comparison takes short cuts there."""
    document, operations = drawn
    old = {"ballast": BALLAST, **document}
    try:
        new = apply(old, size_of(old), operations, limits=LIMITS).document
    except PatchError:
        return
    found = difference(old, new)

    assert found is not None
    assert not any(isinstance(operation, Replace) and operation.path == "/ballast" for operation in found)
    assert dump(replay(old, size_of(old), found)[0]) == dump(new)
