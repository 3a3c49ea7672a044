"""Frames: a 4-byte big-endian length, then that many bytes of one msgpack array.

The length is checked against the limit before anything is allocated. Sans-IO: bytes in, payloads
out; the state machine above it is `connection`.
"""

from __future__ import annotations

from mcpstated.protocol.violations import RemoteProtocolError

HEADER_BYTES = 4
DEFAULT_MAX_FRAME_BYTES = 16 * 1024 * 1024
_KEPT_BYTES = 65_536


def encode_frame(payload: bytes) -> bytes:
    """Return `payload` behind its length."""
    return len(payload).to_bytes(HEADER_BYTES, "big") + payload


class FrameReader:
    """Cuts a stream of bytes into payloads.

    Args:
        max_frame_bytes: The largest payload that is accepted, in bytes.
    """

    __slots__ = ("_buffer", "_start", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._start = 0
        self.max_frame_bytes = max_frame_bytes

    def feed(self, data: bytes) -> None:
        """Add bytes as they came."""
        if self._start > _KEPT_BYTES:  # however the frames fall, what was read is not kept for long
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next_payload(self) -> bytes | None:
        """Return the next whole payload, or None if more bytes are needed.

        Raises:
            RemoteProtocolError: The announced length is zero or above the limit.
        """
        start, buffer = self._start, self._buffer
        held = len(buffer) - start
        if held < HEADER_BYTES:
            return None
        length = int.from_bytes(buffer[start : start + HEADER_BYTES], "big")
        if not 0 < length <= self.max_frame_bytes:
            raise RemoteProtocolError(
                f"a frame of {length} bytes was announced; 1 to {self.max_frame_bytes} are allowed"
            )
        end = start + HEADER_BYTES + length
        if len(buffer) < end:
            return None
        payload = bytes(memoryview(buffer)[start + HEADER_BYTES : end])
        self._start = end
        if end == len(buffer):
            buffer.clear()
            self._start = 0
        return payload

    @property
    def is_inside_frame(self) -> bool:
        """True if bytes of an unfinished frame are held."""
        return len(self._buffer) > self._start
