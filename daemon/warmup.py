"""One round through the surface before the first client comes.

It loads what libraries import on first use, so the first answer is as fast as the next, and a package
that is uninstalled under a running daemon cannot break it.
"""

from __future__ import annotations

import json
from typing import Any

import trio
from mcp.server.lowlevel.server import Server
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from mcpstated.daemon.relay import Relay, RunningCalls
from mcpstated.protocol.messages import FRESH, Deliver, Forward, Settled

_SECONDS = 10.0
_CLIENT = {"name": "warm-up", "version": "1"}


def _lines() -> list[dict[str, Any]]:
    meta = {
        PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
        CLIENT_INFO_META_KEY: _CLIENT,
        CLIENT_CAPABILITIES_META_KEY: {},
    }
    handshake = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": _CLIENT}
    listing = {"name": "state_list", "arguments": {"limit": 1}}
    return [
        {"id": 1, "method": "server/discover", "params": {"_meta": meta}},
        {"id": 2, "method": "tools/list", "params": {"_meta": meta}},
        {"id": 3, "method": "initialize", "params": handshake},
        {"method": "notifications/initialized"},
        {"id": 4, "method": "tools/list"},
        {"id": 5, "method": "tools/call", "params": listing},
    ]


async def warm_up(server: Server[Any], *, user: str) -> None:
    """Send both protocol eras through the surface once and wait for the answers (bounded)."""
    done = trio.Event()
    lines = _lines()
    settled: list[int | None] = []

    async def collect(message: Deliver | Settled) -> None:
        settled.append(message.answers if isinstance(message, Deliver) else message.seq)
        if len(settled) == len(lines):
            done.set()

    relay = Relay(
        server,
        shim_id=bytes(16),
        user=user,
        writer="",
        send=collect,
        room=trio.lowlevel.checkpoint,
        running=RunningCalls(),
        note_settled=lambda _shim, _floor: None,
        max_line_bytes=1 << 20,
    )
    with trio.move_on_after(_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(relay.run)
            for seq, line in enumerate(lines, start=1):
                await relay.forward(Forward(seq, FRESH, 0, json.dumps({"jsonrpc": "2.0", **line}).encode()))
            await done.wait()
            nursery.cancel_scope.cancel()
