"""What a disk may hold after a power cut, worked out from a recording of `support.power_cut`.

What was flushed is there. Of what was done to a file since its last flush, each step may have reached the
disk or not, whatever its order, and a write may be torn at any sector of 512 bytes; a file that grew may
have its new size without its new bytes, and then holds zeros or rubbish there. A name that was made, moved
or removed since the directory was flushed may be as it was at any time since.

A sector holds one of the values that were written to it since the flush. So any choice of steps, or of their
sectors, applied in the order in which they were made, is a legal state, and there are no others.

    flushed "aa", then write "b" at 0, write "c" at 1, cut:    "aa"  "ba"  "ac"  "bc"
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from support.power_cut import Bound, DirectorySynced, Found, Step, Synced, Truncated, Wrote

SECTOR_BYTES = 512
FEW = 4
"""Of so many unflushed steps every choice is made."""

Change: TypeAlias = Wrote | Truncated
State: TypeAlias = "dict[str, bytes]"
"""What each name leads to."""


@dataclass(slots=True)
class _File:
    flushed: bytes = b""
    since: list[Change] = field(default_factory=list)


class Disk:
    """The disk while a recording is played to it, step by step."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._names: dict[str, list[int | None]] = {}
        """What each name led to when the directory was flushed, and since then."""

    def play(self, step: Step) -> None:
        """Let one more step happen."""
        match step:
            case Bound(name, number):
                self._names.setdefault(name, [None]).append(number)
                if number is not None:
                    self._files.setdefault(number, _File())
            case Found(name, number, content):
                self._names[name] = [number]
                self._files[number] = _File(content)
            case Wrote(number) | Truncated(number):
                self._files[number].since.append(step)
            case Synced(number):
                file = self._files[number]
                file.flushed = _after(file.flushed, file.since)
                file.since.clear()
            case DirectorySynced():
                self._names = {name: past[-1:] for name, past in self._names.items()}

    @property
    def unflushed(self) -> list[Change]:
        """What was done to files that can be reached and may be lost."""
        return [change for number in self._reachable() for change in self._files[number].since]

    def kept(self) -> State:
        """Return the state in which everything has reached the disk."""
        return self._state({name: past[-1] for name, past in self._names.items()}, self.unflushed)

    def dropped(self) -> State:
        """Return the state in which nothing has that was not flushed."""
        return self._state({name: past[0] for name, past in self._names.items()}, ())

    def choices(self) -> Iterator[State]:
        """Return a state for every choice of the unflushed steps, if they are few."""
        if len(self.unflushed) > FEW:
            return
        for names in itertools.product(*self._names.values()):
            bound = dict(zip(self._names, names, strict=True))
            for size in range(len(self.unflushed) + 1):
                for chosen in itertools.combinations(self.unflushed, size):
                    yield self._state(bound, chosen)

    def torn(self, rng: random.Random) -> State:
        """Return one of the many states: steps lost, torn and out of order."""
        bound = {name: rng.choice(past) for name, past in self._names.items()}
        likely = rng.choice((0.1, 0.5, 0.9))
        return {
            name: _torn(self._files[number], rng, likely)
            for name, number in bound.items()
            if number is not None
        }

    def _reachable(self) -> list[int]:
        return sorted({number for past in self._names.values() for number in past if number is not None})

    def _state(self, bound: dict[str, int | None], chosen: Sequence[Change]) -> State:
        state = {}
        for name, number in bound.items():
            if number is not None:
                file = self._files[number]
                state[name] = _after(file.flushed, [change for change in chosen if change.file == number])
        return state


def states_at(disk: Disk, rng: random.Random, torn: int) -> Iterator[State]:
    """Return states of a disk at this moment: all, nothing, every choice of few, and some torn ones."""
    yield disk.kept()
    yield disk.dropped()
    yield from disk.choices()
    for _ in range(torn):
        yield disk.torn(rng)


def lay_down(state: State, directory: Path) -> None:
    """Write a state into an empty directory."""
    for name, content in state.items():
        (directory / name).write_bytes(content)


def _after(content: bytes, changes: Sequence[Change]) -> bytes:
    if not changes:
        return content
    result = bytearray(content)
    for change in changes:
        if isinstance(change, Truncated):
            _resize(result, change.size_bytes)
        else:
            _resize(result, max(len(result), change.offset))
            result[change.offset : change.offset + len(change.data)] = change.data
    return bytes(result)


def _torn(file: _File, rng: random.Random, likely: float) -> bytes:
    result = bytearray(file.flushed)
    has_rubbish = rng.random() < 0.5
    for change in file.since:
        is_kept = rng.random() < likely
        if isinstance(change, Truncated):
            if is_kept:
                _resize(result, change.size_bytes)
            continue
        if not is_kept and rng.random() < 0.5:
            continue
        end = change.offset + len(change.data)
        if end > len(result):
            grown = end - len(result)
            result += rng.randbytes(grown) if has_rubbish else bytes(grown)
        pieces = list(_sectors(change))
        prefix = rng.randrange(len(pieces) + 1) if rng.random() < 0.5 else None
        for index, (start, data) in enumerate(pieces):
            if is_kept or (index < prefix if prefix is not None else rng.random() < 0.5):
                result[start : start + len(data)] = data
    return bytes(result)


def _sectors(change: Wrote) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(change.data):
        place = change.offset + start
        size = min(SECTOR_BYTES - place % SECTOR_BYTES, len(change.data) - start)
        yield place, change.data[start : start + size]
        start += size


def _resize(content: bytearray, size_bytes: int) -> None:
    if len(content) > size_bytes:
        del content[size_bytes:]
    else:
        content += bytes(size_bytes - len(content))
