"""Many writers on one handle: every patch lands, in one order, and nobody has to try again."""

from __future__ import annotations

import pytest
import trio

from mcpstated.daemon.testing import RunningEngine
from mcpstated.protocol.errors import StaleWrite
from mcpstated.protocol.patches import Append, SetKey
from mcpstated.protocol.store import Caller, CallToken


@pytest.mark.requirement("C32", "P4")
async def test_every_append_and_key_of_many_writers_lands_once(either: RunningEngine, alice: Caller) -> None:
    """C32: 8 appenders and 8 setters of own keys beside one that saves with versions."""
    store = either.store
    handle = (await store.mint(alice, kind="a", document={"l": [], "saved": 0})).info.handle
    versions: list[int] = []
    lost_by: list[int] = []
    saves = 0
    each = 60

    async def append(writer: int) -> None:
        for index in range(each):
            token = CallToken(bytes([writer]) * 16, index)
            caller = Caller("alice", f"append-{writer}", token)
            versions.append((await store.patch(caller, handle, [Append("l", [writer, index])])).info.version)

    async def set_keys(writer: int) -> None:
        for index in range(each):
            caller = Caller("alice", f"set-{writer}")
            receipt = await store.patch(caller, handle, [SetKey("", f"k{writer}-{index}", index)])
            versions.append(receipt.info.version)

    async def save() -> None:
        nonlocal saves
        while saves < 10:
            snapshot = await store.load(alice, handle)
            document = {**snapshot.document, "saved": saves + 1}
            try:
                receipt = await store.save(
                    alice, handle, document=document, expect_version=snapshot.info.version
                )
            except StaleWrite as error:
                lost_by.append(error.details["current"]["version"] - snapshot.info.version)  # type: ignore[index]
            else:
                versions.append(receipt.info.version)
                saves += 1

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for writer in range(8):
                nursery.start_soon(append, writer)
                nursery.start_soon(set_keys, writer)
            nursery.start_soon(save)
    assert all(versions_behind > 0 for versions_behind in lost_by)
    snapshot = await store.load(alice, handle)
    items = snapshot.document["l"]
    assert isinstance(items, list)
    assert sorted(items) == [[writer, index] for writer in range(8) for index in range(each)]  # type: ignore[type-var]
    assert all(snapshot.document[f"k{w}-{i}"] == i for w in range(8) for i in range(each))
    assert snapshot.document["saved"] == 10
    assert sorted(versions) == list(range(2, 2 + 16 * each + 10))
    assert snapshot.info.version == 1 + 16 * each + 10


@pytest.mark.requirement("P4")
async def test_of_saves_that_expect_the_same_version_one_lands(engine: RunningEngine, alice: Caller) -> None:
    """P4: the others are told the version that won."""
    store = engine.store
    handle = (await store.mint(alice, kind="a", document={"n": 0})).info.handle
    landed: list[int] = []
    lost_to: list[int] = []

    async def save(number: int) -> None:
        try:
            receipt = await store.save(alice, handle, document={"n": number}, expect_version=1)
        except StaleWrite as error:
            lost_to.append(error.details["current"]["version"])  # type: ignore[index]
        else:
            landed.append(receipt.info.version)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for number in range(1, 21):
                nursery.start_soon(save, number)
    assert landed == [2]
    assert lost_to == [2] * 19
