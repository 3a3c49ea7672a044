"""Direct answers: the same as the MCP server's, to everything that is taken, and the rest is not taken."""

from __future__ import annotations

import json
from typing import Any

import mcp_types
import pytest
import trio
from fastmcp import FastMCP
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import version

from mcpstated.daemon.loops import serve
from mcpstated.daemon.mcp_library import Inward
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.store import Store
from mcpstated.surface import eras
from mcpstated.surface.context import RequestContext
from mcpstated.surface.direct import DirectAnswers
from mcpstated.surface.faults import ProtocolFault

META = {
    eras.PROTOCOL_VERSION_KEY: "2026-07-28",
    eras.CLIENT_INFO_KEY: {"name": "Probe", "version": "1"},
    eras.CLIENT_CAPABILITIES_KEY: {},
}
HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "P", "version": "1"}}
RICH_CLIENT = {"name": "P", "version": "1", "title": "T", "websiteUrl": "https://example.org"}

HANDSHAKES = [
    *({**HANDSHAKE, "protocolVersion": known} for known in version.HANDSHAKE_PROTOCOL_VERSIONS),
    {**HANDSHAKE, "protocolVersion": "2026-07-28"},
    {**HANDSHAKE, "protocolVersion": "1999-01-01"},
    {**HANDSHAKE, "clientInfo": RICH_CLIENT, "capabilities": {"roots": {"listChanged": True}}},
    {**HANDSHAKE, "_meta": {"progressToken": "p"}},
]
AFTER_HANDSHAKE = [
    ("ping", None),
    ("ping", {"_meta": {}}),
    ("tools/list", None),
    ("tools/list", {"_meta": {"progressToken": 3}}),
    ("tools/call", {"name": "state_list"}),
    ("tools/call", {"name": "state_list", "arguments": {"limit": "3", "colour": 1}}),
    ("tools/call", {"name": "state_load", "arguments": {"handle": "no_such"}}),
    ("tools/call", {"name": "no_such", "arguments": {}}),
    ("tools/call", {"name": 7}),
    ("tools/call", {"name": "state_list", "arguments": [1]}),
    ("tools/call", {"arguments": {}}),
]
ENVELOPED = [
    ("server/discover", {}),
    *((method, params or {}) for method, params in AFTER_HANDSHAKE if method != "ping"),
]
NOT_TAKEN_MODERN = [
    ("ping", {"_meta": META}),
    ("tools/list", {"_meta": META, "cursor": "x"}),
    ("tools/list", {"_meta": {**META, eras.PROTOCOL_VERSION_KEY: "2030-01-01"}}),
    ("tools/list", {"_meta": {**META, eras.CLIENT_INFO_KEY: {"name": "x"}}}),
    ("tools/list", {"_meta": {**META, eras.CLIENT_INFO_KEY: {"name": 1, "version": "1"}}}),
    ("tools/list", {"_meta": {**META, "progressToken": []}}),
    ("tools/list", {"_meta": {eras.PROTOCOL_VERSION_KEY: "2026-07-28"}}),
    ("tools/call", {"_meta": META, "name": "state_list", "inputResponses": {}}),
    ("resources/list", {"_meta": META}),
    ("subscriptions/listen", {"_meta": META}),
]
NOT_TAKEN_AFTER_HANDSHAKE = [
    ("tools/list", {"cursor": "x"}),
    ("tools/list", {"_meta": 1}),
    ("resources/list", None),
    ("server/discover", None),
    ("initialize", None),
    ("initialize", {**HANDSHAKE, "clientInfo": {"name": "x"}}),
    ("initialize", {**HANDSHAKE, "capabilities": None}),
    ("initialize", {**HANDSHAKE, "protocolVersion": 1}),
]


class Answers:
    """Collects what a loop says."""

    def __init__(self) -> None:
        self.outcomes: dict[int, Any] = {}
        self.came = trio.Event()

    async def on_outcome(self, seq: int, outcome: dict[str, Any] | None) -> None:
        """Keep an outcome."""
        self.outcomes[seq] = outcome
        self.came.set()

    async def on_message(self, message: dict[str, Any]) -> None:
        """Nothing else is expected."""
        raise AssertionError(message)


async def from_server(surface: FastMCP, *items: Inward) -> Any:
    """Return what the MCP server answers to the last of these."""
    answers = Answers()
    channel, source = trio.open_memory_channel[Inward](len(items))
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, surface._mcp_server, source, answers)
            for item in items:
                channel.send_nowait(item)
            while items[-1].seq not in answers.outcomes:
                await answers.came.wait()
                answers.came = trio.Event()
            nursery.cancel_scope.cancel()
    return answers.outcomes[items[-1].seq or 0]


async def directly(direct: DirectAnswers, method: str, params: Any, *, is_modern: bool) -> Any:
    """Return what is answered without it."""
    assert direct.takes(method, params, is_modern=is_modern, has_handshake=True)
    if method != "tools/call":
        return {"result": direct.answer(method, params, is_modern=is_modern)}
    context = RequestContext(user="ann", client_name="Probe")
    try:
        return {"result": await direct.call_tool(context, params, is_modern=is_modern)}
    except ProtocolFault as fault:
        return {"error": {"code": fault.code, "message": fault.message}}


def comparable(outcome: Any) -> Any:
    """Return it as a client sees it."""
    return json.loads(json.dumps(outcome))


@pytest.fixture
async def answers(store: Store, limits: Limits) -> DirectAnswers:
    return DirectAnswers(store, limits=limits, host="laptop", version="1.2.3")


@pytest.mark.parametrize("params", HANDSHAKES)
async def test_a_handshake_is_answered_as_the_server_answers_it(
    surface: FastMCP, answers: DirectAnswers, params: dict[str, Any]
) -> None:
    """Whoever reads the answer must not be able to tell whether the libraries were loaded by then."""
    said = await from_server(surface, Inward("initialize", params, 1, RequestContext(user="ann")))
    assert comparable(await directly(answers, "initialize", params, is_modern=False)) == comparable(said)


@pytest.mark.parametrize(("method", "params"), AFTER_HANDSHAKE)
async def test_after_a_handshake_answers_are_those_of_the_server(
    surface: FastMCP, answers: DirectAnswers, method: str, params: Any
) -> None:
    """Results and errors alike."""
    context = RequestContext(user="ann", client_name="Probe")
    said = await from_server(
        surface,
        Inward("initialize", HANDSHAKE, 1, context),
        Inward("notifications/initialized", None),
        Inward(method, params, 2, context),
    )
    assert comparable(await directly(answers, method, params, is_modern=False)) == comparable(said)


@pytest.mark.parametrize(("method", "params"), ENVELOPED)
async def test_with_an_envelope_answers_are_those_of_the_server(
    surface: FastMCP, answers: DirectAnswers, method: str, params: Any
) -> None:
    """Results carry the stamp, the type and the hints of the modern era."""
    enveloped = {**params, "_meta": META}
    said = await from_server(surface, Inward(method, enveloped, 1, RequestContext(user="ann")))
    assert comparable(await directly(answers, method, enveloped, is_modern=True)) == comparable(said)


async def test_what_is_out_of_the_ordinary_is_left_to_the_server(answers: DirectAnswers) -> None:
    """It knows what is wrong with it, and says so in the words that clients know."""
    for method, params in NOT_TAKEN_MODERN:
        assert not answers.takes(method, params, is_modern=True, has_handshake=True), (method, params)
    for method, params in NOT_TAKEN_AFTER_HANDSHAKE:
        assert not answers.takes(method, params, is_modern=False, has_handshake=True), (method, params)
    for method in ("tools/list", "tools/call"):
        assert not answers.takes(method, {"name": "x"}, is_modern=False, has_handshake=False)


def test_versions_and_names_are_those_of_the_sdk() -> None:
    """They are written down twice, so that they can be known without it."""
    assert version.HANDSHAKE_PROTOCOL_VERSIONS == eras.HANDSHAKE_VERSIONS
    assert version.MODERN_PROTOCOL_VERSIONS == eras.MODERN_VERSIONS
    assert eras.HANDSHAKE_VERSIONS[-1] == version.LATEST_HANDSHAKE_VERSION
    assert mcp_types.PROTOCOL_VERSION_META_KEY == eras.PROTOCOL_VERSION_KEY
    assert mcp_types.CLIENT_INFO_META_KEY == eras.CLIENT_INFO_KEY
    assert mcp_types.CLIENT_CAPABILITIES_META_KEY == eras.CLIENT_CAPABILITIES_KEY
    assert mcp_types.SERVER_INFO_META_KEY == eras.SERVER_INFO_KEY
    assert SUBSCRIPTION_ID_META_KEY == eras.SUBSCRIPTION_ID_KEY
