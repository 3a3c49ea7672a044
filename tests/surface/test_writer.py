from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from mcpstated.surface.writer import slug


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Claude Code", "claude-code"),
        ("claude-code", "claude-code"),
        ("codex_mcp_client", "codex_mcp_client"),
        ("  Visual Studio Code - Insiders  ", "visual-studio-code-insiders"),
        ("opencode.ai/v1", "opencode.ai-v1"),
        ("a\nb\x00c", "a-b-c"),
        ("クロード", ""),
        ("...", ""),
        ("", ""),
        pytest.param("x" * 10_000, "x" * 64, id="huge"),
        pytest.param("\ud800", "", id="surrogate"),
    ],
)
def test_a_client_name_becomes_a_short_label(name: str, label: str) -> None:
    """What a client calls itself goes into every reply and every list."""
    assert slug(name) == label


async def test_the_last_writer_is_host_and_client(open_desk: Callable[..., Awaitable[object]]) -> None:
    """Both eras say who the client is, in different places."""
    desk = await open_desk(client="Claude Code")
    saved = await desk.ok("state_save", kind="research", state={})
    assert saved["last_writer"] == "laptop/claude-code"


async def test_a_client_without_a_usable_name_is_only_the_host(
    open_desk: Callable[..., Awaitable[object]],
) -> None:
    desk = await open_desk(client="?")
    saved = await desk.ok("state_save", kind="research", state={})
    assert saved["last_writer"] == "laptop"


async def test_a_label_that_the_peer_asked_for_wins(open_desk: Callable[..., Awaitable[object]]) -> None:
    desk = await open_desk(client="Claude Code", writer="night shift")
    saved = await desk.ok("state_save", kind="research", state={})
    assert saved["last_writer"] == "night shift"
