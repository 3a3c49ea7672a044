"""What one peer sends: bytes to messages, within its share and its time.

    socket -> pace -> Connection -> message

A peer may be silent between two frames for as long as it likes. A frame that has begun must end within a
bounded time of waiting for it, or one byte a minute would hold a buffer for ever. Time during which the
daemon itself does not read counts for nothing. Above it is the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from mcpstated.daemon.shares import TURN_BYTES
from mcpstated.protocol.violations import RemoteProtocolError

if TYPE_CHECKING:
    from mcpstated.daemon.shares import Share
    from mcpstated.protocol.connection import Connection
    from mcpstated.protocol.messages import Message

_RECEIVE_BYTES = 64 * 1024
FRAME_SECONDS = 60.0
"""How long the daemon waits for the bytes of one frame."""


class Intake:
    """The reading half of a connection. Owned by its session's task."""

    def __init__(self, socket: trio.socket.SocketType, connection: Connection, share: Share) -> None:
        self._socket = socket
        self._connection = connection
        self._share = share
        self._seconds_left = FRAME_SECONDS

    async def next_message(self) -> Message | None:
        """Return the next message, or None at the end of the connection.

        Raises:
            RemoteProtocolError: The peer broke the protocol, or did not end a frame in time.
            OSError: The connection broke.
        """
        is_queued = True
        while (message := self._connection.next_event()) is None:
            is_queued = False
            if self._connection.peer_role is not None:  # a hello is small, and has a time of its own
                await self._share.pace()
            is_piece = self._connection.is_inside_frame
            data = await self._receive()
            if not data:
                return None
            self._share.charge(max(len(data), TURN_BYTES) if is_piece else len(data))
            self._connection.receive_data(data)
        self._seconds_left = FRAME_SECONDS
        if is_queued:
            self._share.charge(TURN_BYTES)
            await self._share.pace()
        return message

    async def _receive(self) -> bytes:
        if not self._connection.is_inside_frame:
            self._seconds_left = FRAME_SECONDS
            return await self._socket.recv(_RECEIVE_BYTES)
        began = trio.current_time()
        with trio.move_on_after(self._seconds_left):
            data = await self._socket.recv(_RECEIVE_BYTES)
            # The bytes may come in the very moment in which the time is over, or a little later.
            self._seconds_left = max(0.0, self._seconds_left - (trio.current_time() - began))
            return data
        raise RemoteProtocolError(f"a frame stood unfinished for {FRAME_SECONDS:g} seconds")
