"""The two eras of MCP as far as an answer needs to know them, without loading the libraries that speak them.

A test holds these names and versions beside those of the SDK.
"""

from __future__ import annotations

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Versions that begin with `initialize`; the last one is offered to clients that ask for another."""
MODERN_VERSIONS = ("2026-07-28",)
"""Versions in which every request says in its `_meta` what a handshake would have said."""

PROTOCOL_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_KEY = "io.modelcontextprotocol/subscriptionId"
"""Names in `_meta`."""
