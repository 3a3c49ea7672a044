"""Whether what everybody saw is what the changes make, applied one after another in version order.

Where no acknowledged change has a version, one whose outcome is unknown must have made it: each that began
early enough is tried there, and the attempts that lead to what was seen are followed. There are few of
them, and what was seen decides soon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from mcpstated.cli.selftest.documents import Impossible, Version, next_version, part_at, size_of
from mcpstated.cli.selftest.history import Call
from mcpstated.cli.selftest.problems import Kind, Problem
from mcpstated.cli.selftest.versions import changes_by_version, newest_version

MAX_STEPS = 100_000
"""Versions that are made, all attempts together, before the search is given up."""


class Misfit(Exception):
    """Why a replay cannot go on."""

    def __init__(self, version: int, kind: Kind, what: str) -> None:
        super().__init__(what)
        self.version = version
        self.kind: Kind = kind
        self.what = what


def replay_problem(calls: Sequence[Call]) -> Problem | None:
    """Return the first thing that is wrong with what was seen of one handle, or None."""
    misfit = _Replay(calls).misfit()
    return None if misfit is None else Problem(misfit.kind, calls[0].handle, misfit.what)


class _Replay:
    """The search over one handle."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._changes = changes_by_version(calls)
        self._newest = newest_version(calls)
        self._unknown = tuple(call for call in calls if call.is_write and call.is_unknown)
        self._seen: dict[int, list[Call]] = {}
        for call in calls:
            if call.version is not None:
                self._seen.setdefault(call.version, []).append(call)
        self._last_begin = _last_begins(self._seen, self._newest)
        self._steps = 0

    def misfit(self) -> Misfit | None:
        """Return None if some order of the unknown changes explains everything, else the furthest failure."""
        return self._from(1, None, self._unknown)

    def _from(self, version: int, before: Version | None, unused: tuple[Call, ...]) -> Misfit | None:
        for number in range(version, self._newest + 1):
            write = self._changes.get(number)
            if write is None:
                return self._over_gap(number, before, unused)
            try:
                before = self._step(number, before, write)
            except Misfit as misfit:
                return misfit
        return None

    def _over_gap(self, number: int, before: Version | None, unused: tuple[Call, ...]) -> Misfit | None:
        furthest = Misfit(number, "gap", f"nobody can have made version {number}")
        for candidate in unused:
            if candidate.started > self._last_begin[number]:
                continue
            if candidate.arguments.get("expect_version", number - 1) != number - 1:
                continue
            rest = tuple(call for call in unused if call is not candidate)
            try:
                misfit = self._from(number + 1, self._step(number, before, candidate), rest)
            except Misfit as error:
                misfit = error
            if misfit is None or misfit.kind == "undecided":
                return misfit
            if misfit.version > furthest.version:
                furthest = misfit
        return furthest

    def _step(self, number: int, before: Version | None, write: Call) -> Version:
        """Return the next version, if everybody saw it so.

        Raises: Misfit.
        """
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Misfit(number, "undecided", f"{len(self._unknown)} unknown outcomes are too many to try")
        try:
            after = next_version(before, write)
        except (Impossible, KeyError, TypeError) as error:
            kind: Kind = "undead" if before is not None and before.is_deleted else "content"
            text = f"{write.words()} made version {number}, where it cannot apply: {error}"
            raise Misfit(number, kind, text) from None
        size_bytes = size_of(after.document)
        for call in self._seen.get(number, ()):
            _compare(call, number, after, size_bytes)
        return after


def _last_begins(seen: Mapping[int, Sequence[Call]], newest: int) -> list[float]:
    """Return for each version the time by which whatever made it must have begun.

    That is when the first call ended that saw it or a later one.
    """
    latest = [math.inf] * (newest + 2)
    for version in range(newest, 0, -1):
        ends = (call.ended for call in seen.get(version, ()) if not call.is_past)
        latest[version] = min(latest[version + 1], min(ends, default=math.inf))
    return latest


def _compare(call: Call, number: int, version: Version, size_bytes: int) -> None:
    """Raise Misfit if a call saw something else at that version."""
    if version.is_deleted and call.operation != "delete" and not call.is_past:
        raise Misfit(number, "undead", f"{call.words()} saw version {number}, which is the deletion")
    for what, seen, made in _observations(call, version, size_bytes):
        if seen != made:
            text = f"{call.words()} saw at version {number} as {what}: {_short(seen)}; it is {_short(made)}"
            raise Misfit(number, "content", text)


def _observations(call: Call, version: Version, size_bytes: int) -> Iterator[tuple[str, object, object]]:
    """Yield what a call says of the version that it names, beside what it should say."""
    fields, document = call.fields, version.document
    if "size_bytes" in fields:
        yield "size", fields["size_bytes"], size_bytes
    if "state" in fields:
        path = call.arguments.get("path", "") if call.operation == "load" else ""
        yield f"state{f' at {path}' if path else ''}", fields["state"], part_at(document, path)
    if call.is_change:  # one operation a path, so the length after it is the length after all
        for touched in fields.get("touched", ()):
            length = len(part_at(document, touched["path"]))
            yield f"length of {touched['path']}", touched["length"], length


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:100]} ... {text[-90:]}"
