"""The same surface through the SDK's own client, which validates what it gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastmcp import FastMCP
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from mcpstated.surface.context import RequestContext


@pytest.mark.requirement("C15")
async def test_a_strict_client_accepts_success_and_failure(open_client: Any) -> None:
    """The client checks structured content against the output schema that the tool advertises."""
    async with open_client() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert len(tools) == 6
        saved = await client.call_tool("state_save", {"kind": "research", "state": {"l": []}})
        assert saved.is_error is False
        handle = saved.structured_content["handle"]
        failing: list[tuple[str, dict[str, Any], str]] = [
            ("state_save", {"handle": handle, "state": {}, "expect_version": 9}, "stale_write"),
            ("state_load", {"handle": "research_none"}, "handle_not_found"),
            ("state_load", {"handle": handle, "path": "x"}, "invalid_input"),
            ("state_patch", {"handle": handle, "ops": [{"op": "x"}]}, "patch_error"),
        ]
        for tool, arguments, code in failing:
            result = await client.call_tool(tool, arguments)
            assert result.is_error is True
            assert result.structured_content["ok"] is False
            assert result.structured_content["error"]["code"] == code
            assert not result.content[0].text.startswith("{"), "text for the model comes first"
            assert json.loads(result.content[1].text) == result.structured_content


@pytest.mark.requirement("C15")
async def test_an_unknown_tool_is_an_error_of_the_protocol(open_client: Any) -> None:
    async with open_client() as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("state_drop", {})
        assert refused.value.error.code == INVALID_PARAMS
        assert (await client.call_tool("state_list", {})).is_error is False


@pytest.mark.requirement("P3", "P4")
async def test_two_clients_share_one_state(open_client: Any) -> None:
    """The day of a research assistant: one starts, the other resumes, both add, one loses a race."""
    async with open_client("Claude Code") as first, open_client("Codex") as second:
        saved = await first.call_tool(
            "state_save", {"kind": "research", "state": {"sources": []}, "title": "Zinc"}
        )
        handle = saved.structured_content["handle"]
        listed = await second.call_tool("state_list", {"query": "zinc"})
        assert listed.structured_content["handles"][0]["handle"] == handle
        assert listed.structured_content["handles"][0]["last_writer"] == "laptop/claude-code"
        for client in (first, second):
            op = {"op": "append", "path": "sources", "value": client.client_info.name}
            assert (await client.call_tool("state_patch", {"handle": handle, "ops": [op]})).is_error is False
        loaded = (await first.call_tool("state_load", {"handle": handle})).structured_content
        assert loaded["state"] == {"sources": ["Claude Code", "Codex"]}
        assert loaded["last_writer"] == "laptop/codex"
        won = await second.call_tool("state_save", {"handle": handle, "state": {"n": 2}, "expect_version": 3})
        lost = await first.call_tool("state_save", {"handle": handle, "state": {"n": 1}, "expect_version": 3})
        assert won.is_error is False
        assert lost.structured_content["error"]["current"]["last_writer"] == "laptop/codex"


async def test_text_and_structure_say_the_same(open_client: Any) -> None:
    """Half of the clients show their model only one of the two."""
    state = {"null": None, "nested": {"null": None}, "float": 1.0, "text": "é\u2028"}
    async with open_client() as client:
        saved = await client.call_tool("state_save", {"kind": "research", "state": state})
        loaded = await client.call_tool("state_load", {"handle": saved.structured_content["handle"]})
        assert len(loaded.content) == 1
        assert json.loads(loaded.content[0].text) == loaded.structured_content
        assert loaded.structured_content["state"] == state


async def test_a_server_that_mounts_the_surface_serves_its_tools(surface: Any, desk: Any) -> None:
    """FastMCP then runs the tools itself; they answer the same and still ask who is calling."""
    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(surface)
    caller = type(desk)(outer, desk._era)
    await caller.open()
    handle = await caller.mint({"a": 1})
    assert await desk.state(handle) == {"a": 1}
    assert (await caller.refused("state_load", handle="research_none"))["code"] == "handle_not_found"
    caller.context = RequestContext(user="")
    result = await caller.request("tools/call", {"name": "state_list", "arguments": {}})
    assert result["structuredContent"]["error"]["code"] == "unauthenticated"
