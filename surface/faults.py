"""What a request is refused for by the protocol itself, before any tool has a say."""

from __future__ import annotations

INVALID_PARAMS = -32602
"""The code of JSON-RPC for parameters that do not fit the method."""


class ProtocolFault(Exception):
    """A JSON-RPC error in the place of a result: a fault of the client, not of the model."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
