"""Ring 3: the MCP server behind the direct answers, which is loaded while clients are served."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

import mcpstated.daemon
import mcpstated.daemon.loops
from support.daemons import daemon_in
from support.wire import shim_at

UNUSUAL = {"cursor": "page-2"}
"""A parameter that no direct answer takes."""


async def test_the_server_hears_of_a_handshake_that_it_did_not_answer(data_dir: Path) -> None:
    """It refuses whoever comes without one, and the client has shaken hands."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(60):
            await shim.handshake()
            listing = await shim.ask(2, "tools/list", UNUSUAL)
            missing = await shim.ask(3, "prompts/list")

    assert len(listing["result"]["tools"]) == 6
    assert missing["error"] == {"code": -32601, "message": "Method not found", "data": "prompts/list"}


async def test_without_a_handshake_the_server_says_so(data_dir: Path) -> None:
    """The way past the server must not be a way past its rules."""
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(60):
            listing = await shim.ask(1, "tools/list")

    assert listing["error"]["code"] == -32602


@pytest.mark.requirement("P7")
async def test_a_server_that_cannot_be_loaded_takes_nothing_else_down(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody upgrades the packages at that very moment: states can still be used, and the log says why."""
    monkeypatch.delattr(mcpstated.daemon, "loops", raising=False)
    monkeypatch.setitem(sys.modules, "mcpstated.daemon.loops", None)
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(60):
            await shim.handshake()
            saved = await shim.tool("state_save", kind="t", state={})
            unusual = await shim.ask(3, "tools/list", UNUSUAL)
            usual = await shim.ask(4, "tools/list")

    assert saved["ok"]
    assert unusual["error"]["code"] == -32603
    assert len(usual["result"]["tools"]) == 6
    assert "MCP server could not be loaded" in caplog.text


@pytest.mark.requirement("P7")
async def test_a_first_round_that_fails_takes_nothing_down(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It only makes later answers faster."""

    async def fail(*_arguments: object, **_more: object) -> None:
        raise RuntimeError("from a new version of the SDK")

    monkeypatch.setattr("mcpstated.daemon.loops.warm_up", fail)
    async with daemon_in(data_dir) as daemon, shim_at(daemon.socket) as shim:
        with trio.fail_after(60):
            await shim.handshake()
            assert len((await shim.ask(2, "tools/list", UNUSUAL))["result"]["tools"]) == 6
    assert "first round through the MCP server failed" in caplog.text
