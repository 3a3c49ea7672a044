"""A write that is asked for again is answered as it was the first time, to the last byte of the reply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpstated.protocol.messages import RESENT, Deliver
from support.daemons import daemon_in
from support.wire import MODERN_META, FakeShim, shim_at

SHIM_ID = b"a" * 16
OPS = [
    {"op": "append", "path": "l", "value": "é"},
    {"op": "set_key", "path": "", "key": "k", "value": 1.0},
    {"op": "merge", "path": "", "mapping": {"m": 12345678901234567890123}},
]


class Twice:
    """Makes calls over one connection, and again over the next."""

    def __init__(self, shim: FakeShim, era: str) -> None:
        self.shim = shim
        self.era = era
        self.answers: dict[int, tuple[bytes, bytes]] = {}

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Make one call that will be repeated, and return its structured content."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if self.era == "modern":
            params["_meta"] = MODERN_META
        line = json.dumps(
            {"jsonrpc": "2.0", "id": len(self.answers), "method": "tools/call", "params": params}
        )
        seq = await self.shim.forward(line.encode())
        answer = await self.shim.settlement(seq)
        assert isinstance(answer, Deliver)
        self.answers[seq] = line.encode(), answer.line
        content: dict[str, Any] = json.loads(answer.line)["result"]["structuredContent"]
        assert content["ok"], content
        return content


@pytest.mark.requirement("P2")
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_every_write_is_answered_again_as_it_was_whatever_happened_since(
    tmp_path: Path, era: str, is_restarted: bool
) -> None:
    """P2: the client may have seen the first answer; two that differ would be two truths."""
    with trio.fail_after(120):
        async with daemon_in(tmp_path) as daemon, shim_at(daemon.socket, shim_id=SHIM_ID) as shim:
            await shim.handshake("Somebody")
            twice = await make_calls(shim, era)
            if not is_restarted:
                await repeat(daemon.socket, twice)
        if is_restarted:
            async with daemon_in(tmp_path) as daemon:
                await repeat(daemon.socket, twice)


async def make_calls(shim: FakeShim, era: str) -> Twice:
    twice = Twice(shim, era)
    saved = await twice.call("state_save", kind="a", state={"l": []}, title="T", ttl_days=3, colour="blue")
    handle = saved["handle"]
    await twice.call("state_patch", handle=handle, ops=OPS)
    await twice.call("state_patch", handle=handle, ops=OPS, return_state=True)
    await twice.call(
        "state_save",
        handle=handle,
        state={"l": ["x" * 70_000]},
        expect_version=3,
        title="",
        request_key="key",
    )
    await twice.call("state_patch", handle=handle, ops=[OPS[0]], return_state=True)
    await twice.call("state_touch", handle=handle, ttl_days=9)
    await shim.tool("state_patch", handle=handle, ops=[OPS[0]])
    await twice.call("state_delete", handle=handle)
    other = (await twice.call("state_save", kind="a", state={"l": []}))["handle"]
    await twice.call("state_patch", handle=other, ops=[OPS[0]], return_state=True)
    await shim.tool("state_patch", handle=other, ops=[OPS[0]])
    return twice


async def repeat(socket: str, twice: Twice) -> None:
    deleted = json.loads(next(iter(twice.answers.values()))[1])["result"]["structuredContent"]["handle"]
    async with shim_at(socket, shim_id=SHIM_ID) as shim:
        shim.seq = 1_000
        await shim.handshake("Somebody else")
        for seq, (line, first) in twice.answers.items():
            await shim.forward(line, mode=RESENT, seq=seq)
            again = await shim.settlement(seq)
            assert isinstance(again, Deliver)
            if reads_what_is_gone(line, deleted):
                assert without_state(again.line) == without_state(first)
            else:
                assert again.line == first


def reads_what_is_gone(line: bytes, handle: str) -> bool:
    """The document of a handle that was deleted since cannot be told again; everything else can."""
    arguments = json.loads(line)["params"]["arguments"]
    return arguments.get("return_state") is True and arguments["handle"] == handle


def without_state(line: bytes) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(line)["result"]["structuredContent"]
    return {name: content[name] for name in content if name not in ("state", "truncated", "outline", "hint")}
