"""Ring 1: cutting a stream of bytes into frames."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpstated.protocol.frames import FrameReader, encode_frame
from mcpstated.protocol.violations import RemoteProtocolError


def drain(reader: FrameReader) -> list[bytes]:
    payloads = []
    while (payload := reader.next_payload()) is not None:
        payloads.append(payload)
    return payloads


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.data())
def test_frames_are_the_same_whole_byte_by_byte_and_in_any_portions(
    payloads: list[bytes], data: st.DataObject
) -> None:
    """A stream has no portions; what a read happens to return must not show."""
    stream = b"".join(map(encode_frame, payloads))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=10).map(sorted))
    portions = [stream[i:j] for i, j in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    for pieces in ([stream], [bytes([byte]) for byte in stream], portions):
        reader = FrameReader()
        found = []
        for piece in pieces:
            reader.feed(piece)
            found.extend(drain(reader))
        assert found == payloads
        assert not reader.is_inside_frame


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("length", [0, 1_001, 2**31, 2**32 - 1])
def test_a_length_out_of_range_is_refused_as_soon_as_it_is_announced(length: int) -> None:
    """Before a byte of it comes, let alone is allocated (C20: a header for 4 GiB)."""
    reader = FrameReader(max_frame_bytes=1_000)
    header = length.to_bytes(4, "big")
    reader.feed(header[:3])
    assert reader.next_payload() is None
    reader.feed(header[3:])

    with pytest.raises(RemoteProtocolError, match=f"{length} bytes was announced; 1 to 1000"):
        reader.next_payload()


@pytest.mark.requirement("P6")
def test_the_largest_and_the_smallest_frame_are_taken() -> None:
    """The limit itself is allowed."""
    reader = FrameReader(max_frame_bytes=1_000)
    reader.feed(encode_frame(b"x" * 1_000) + encode_frame(b"y"))

    assert drain(reader) == [b"x" * 1_000, b"y"]


def test_an_unfinished_frame_is_known_as_such() -> None:
    """An end of stream inside a frame is a broken peer, one between frames is a farewell."""
    reader = FrameReader()
    assert not reader.is_inside_frame
    reader.feed(b"\x00")
    assert reader.is_inside_frame
    reader.feed(b"\x00\x00\x02a")
    assert reader.next_payload() is None
    assert reader.is_inside_frame
    reader.feed(b"b")
    assert reader.next_payload() == b"ab"
    assert not reader.is_inside_frame


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("extra", [1, 3, 4, 100])
def test_bytes_that_were_read_are_not_kept(extra: int) -> None:
    """However frames and reads are aligned: if each read ends inside the next frame, nothing piles up."""
    frame = encode_frame(b"x" * 10_000)
    stream = frame * 2 + frame[:extra]
    shifted = frame[extra:] + frame + frame[:extra]
    reader = FrameReader()
    reader.feed(stream)
    assert len(drain(reader)) == 2

    tracemalloc.start()
    try:
        for _ in range(200):
            reader.feed(shifted)
            assert len(drain(reader)) == 2
        kept, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 300_000
