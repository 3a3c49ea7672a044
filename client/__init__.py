"""Durable state for MCP clients and servers.

The package hands out its public names lazily (PEP 562), so that the shim, which lives below it, does
not pay for the rest.
"""

from __future__ import annotations

from mcpstated.protocol.version import VERSION as __version__

__all__ = ["__version__"]
