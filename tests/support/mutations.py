"""Valid input, spoilt: what a broken or hostile peer sends is mostly nearly right."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st


@st.composite
def mutated(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    """Draw some of the samples in a row, with bytes changed, left out, put in and doubled here and there."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(samples), min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["change", "leave out", "put in", "double", "cut", "splice"]))
        length = draw(st.integers(1, 12))
        if kind == "change":
            data[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
        elif kind == "leave out":
            del data[place : place + length]
        elif kind == "put in":
            data[place:place] = draw(st.binary(min_size=1, max_size=length))
        elif kind == "double":
            data[place:place] = data[place : place + length]
        elif kind == "cut":
            del data[place:]
        else:
            data[place:] = draw(st.sampled_from(samples))
    return bytes(data)


@st.composite
def portions(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Draw how a stream of bytes is cut by those who carry it."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
