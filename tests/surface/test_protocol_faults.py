from __future__ import annotations

from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from mcpstated.surface.context import RequestContext

UNDECLARED = {
    "prompts/list": None,
    "prompts/get": {"name": "x"},
    "resources/list": None,
    "resources/templates/list": None,
    "resources/read": {"uri": "x://y"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "x"},
        "argument": {"name": "a", "value": ""},
    },
    "logging/setLevel": {"level": "info"},
    "subscriptions/listen": {"notifications": {"toolsListChanged": True}},
    "tasks/list": None,
    "no/such": None,
}


async def code_of(desk: Any, method: str, params: Any) -> int:
    with pytest.raises(MCPError) as refused:
        await desk.request(method, params)
    code: int = refused.value.error.code
    return code


@pytest.mark.requirement("C37")
async def test_an_undeclared_method_is_not_found(desk: Any) -> None:
    """Some clients ask for prompts and resources whatever the capabilities say, and wait for an answer."""
    for method, params in UNDECLARED.items():
        assert await code_of(desk, method, params) == METHOD_NOT_FOUND, method
        assert await code_of(desk, method, {"nonsense": 1}) == METHOD_NOT_FOUND, method
    assert (await desk.ok("state_list"))["handles"] == []


@pytest.mark.requirement("C15")
async def test_an_unknown_tool_is_a_protocol_error(desk: Any) -> None:
    """It is a fault of the client, not of the model, and names what there is."""
    for name in ("state_drop", "", "STATE_SAVE", "x" * 10_000, "\ud800"):
        with pytest.raises(MCPError) as refused:
            await desk.request("tools/call", {"name": name, "arguments": {}})
        assert refused.value.error.code == INVALID_PARAMS
        assert "state_save" in refused.value.error.message
        assert len(refused.value.error.message.encode()) < 500


@pytest.mark.requirement("C37")
async def test_missing_and_null_arguments_are_none(desk: Any) -> None:
    for params in ({"name": "state_list"}, {"name": "state_list", "arguments": None}):
        result = await desk.request("tools/call", params)
        assert result["structuredContent"]["ok"] is True


@pytest.mark.requirement("C37")
async def test_arguments_that_come_as_json_text_are_decoded(desk: Any) -> None:
    await desk.mint()
    await desk.mint()
    for text, count in (("{}", 2), ("", 2), (' {"limit": 1} ', 1)):
        assert len((await desk.call("state_list", text))["structuredContent"]["handles"]) == count


@pytest.mark.requirement("C37")
async def test_arguments_of_another_type_are_a_protocol_error(desk: Any) -> None:
    for arguments in ([], [{}], 1, True, "[]", "{", '"{}"', "null?"):
        code = await code_of(desk, "tools/call", {"name": "state_list", "arguments": arguments})
        assert code == INVALID_PARAMS, arguments
    assert (await desk.ok("state_list"))["total"] == 0


@pytest.mark.requirement("C37")
async def test_a_call_without_a_tool_name_is_a_protocol_error(desk: Any) -> None:
    for params in (None, {}, {"name": None}, {"name": 7}, {"name": ["state_list"]}):
        assert await code_of(desk, "tools/call", params) == INVALID_PARAMS, params


@pytest.mark.requirement("P5")
async def test_a_call_that_nobody_vouches_for_is_refused(desk: Any) -> None:
    """Whatever feeds this server, state belongs to somebody or is not served."""
    for context in (None, object(), RequestContext(user="")):
        desk.context = context
        result = await desk.request("tools/call", {"name": "state_list", "arguments": {}})
        assert result["isError"] is True
        assert result["structuredContent"]["error"]["code"] == "unauthenticated"
