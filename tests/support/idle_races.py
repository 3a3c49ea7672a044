"""Clients that come at the moment in which a daemon that nobody uses leaves."""

from __future__ import annotations

import random
from pathlib import Path

import trio

from support.mcp_client import mcp_client, starting_environment

IDLE_SECONDS = 1.0
START_SECONDS = 0.05
"""About what a shim takes from its start until it connects."""
SPREAD_SECONDS = 0.05


async def race(data_dir: Path, rounds: int, *, seed: int) -> int:
    """Come and save once, leave, and come again when the idle time is nearly or just over.

    Returns:
        How many handles there are in the end; each round made one.

    Raises:
        AssertionError: A save was not answered as it should be.
    """
    generator = random.Random(seed)
    environ = starting_environment(data_dir, MCPSTATED_IDLE_SECONDS=str(IDLE_SECONDS))
    total = 0
    for number in range(rounds):
        if number:
            await trio.sleep(
                IDLE_SECONDS - START_SECONDS + generator.uniform(-SPREAD_SECONDS, SPREAD_SECONDS)
            )
        async with mcp_client(data_dir, environ=environ) as client:
            reply = await client.tool("state_save", kind="race", state={"n": number})
            assert reply["ok"], reply
            if number == rounds - 1:
                total = (await client.tool("state_list", kind="race", limit=1))["total"]
    return total
