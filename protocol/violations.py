"""How a protocol ends badly: which side broke it.

After a remote error a `Connection` reads nothing more; a local one leaves it as it was. Any other
exception out of this package's codec is our bug.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """One side of the wire did what the protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """We were asked to send what must not be sent now."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that are not the protocol. The text may be sent back to it."""
