"""Which call made which version of a handle, and whether that can have happened in the order of time.

Every change of a handle has a version, so the order of its changes is known and need not be searched. Each
call then has a place in it: a change at its version, a read just after the version that it saw. A history
is linearizable if nobody who began after another one had ended has an earlier place, and if what each read
saw is what the changes before it make, which is for `replay` to say.

    append --> 4                 a change at 4
                  load --> 3     began after 4 was acknowledged: stale
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mcpstated.cli.selftest.history import NO_ANSWER, Call
from mcpstated.cli.selftest.problems import Kind, Problem

_EXPECTED_CODES = ("stale_write", "handle_not_found", "daemon_unavailable", "outcome_unknown", NO_ANSWER)


def changes_by_version(calls: Sequence[Call]) -> dict[int, Call]:
    """Return the acknowledged changes; of two with one version the first."""
    changes: dict[int, Call] = {}
    for call in calls:
        if call.is_change and call.version is not None:
            changes.setdefault(call.version, call)
    return changes


def newest_version(calls: Sequence[Call]) -> int:
    """Return the highest version that anybody saw."""
    return max((call.version for call in calls if call.version is not None), default=0)


def version_problems(calls: Sequence[Call]) -> Iterator[Problem]:
    """Yield what is wrong with the versions of one handle and their order in time."""
    yield from _answer_problems(calls)
    yield from _repeated_versions(calls)
    yield from _time_problems(calls)
    yield from _save_problems(calls)
    yield from _deletion_problems(calls)


def _answer_problems(calls: Sequence[Call]) -> Iterator[Problem]:
    for call in calls:
        if call.code == NO_ANSWER:
            yield _problem("no_answer", call, f"{call.words()} was not answered")
        elif call.code and call.code not in _EXPECTED_CODES:
            message = call.reply["error"].get("message", "") if call.reply else ""
            yield _problem("refused", call, f"{call.words()} was refused: {call.code}: {message}")


def _repeated_versions(calls: Sequence[Call]) -> Iterator[Problem]:
    first = changes_by_version(calls)
    for call in calls:
        if call.is_change and call.version is not None and first[call.version] is not call:
            other = first[call.version].words()
            yield _problem("version_twice", call, f"{call.words()} and {other} both made {call.version}")


def _time_problems(calls: Sequence[Call]) -> Iterator[Problem]:
    """Compare each call with those that had ended when it began."""
    deleted_at = _deleted_at(calls)
    placed = [(call, place) for call in calls if (place := _place_of(call, deleted_at)) is not None]
    by_end = sorted(placed, key=lambda item: item[0].ended)
    ended = 0
    newest: tuple[Call, float] | None = None
    for call, place in sorted(placed, key=lambda item: item[0].started):
        while ended < len(by_end) and by_end[ended][0].ended < call.started:
            if newest is None or by_end[ended][1] > newest[1]:
                newest = by_end[ended]
            ended += 1
        if newest is None:
            continue
        before, its_place = newest
        if place < its_place or (call.is_change and place == its_place):
            kind: Kind = "order" if call.is_change else "stale_read" if before.is_change else "backward_read"
            text = f"{call.words()} saw {_seen(place)}; {before.words()} had ended before with "
            yield _problem(kind, call, text + _seen(its_place))


def _seen(place: float) -> str:
    return "no handle" if math.isinf(place) else f"version {place:g}"


def _place_of(call: Call, deleted_at: float) -> float | None:
    """Return where a call stands among the versions; None for one that says nothing of it."""
    if call.is_past:
        return None
    return deleted_at if call.code == "handle_not_found" else call.version


def _deleted_at(calls: Sequence[Call]) -> float:
    """Return the version with which the handle went; infinite if that is not known."""
    for call in calls:
        if call.is_done and call.operation == "delete" and call.version is not None:
            return call.version
        if call.is_done and call.operation == "undelete" and call.version is not None:
            return call.version - 1
    return math.inf


def _save_problems(calls: Sequence[Call]) -> Iterator[Problem]:
    """Look whether saves landed exactly on the version that they were based on, and lost only to others."""
    for call in calls:
        if call.operation != "save" or call.version is None:
            continue
        expected = call.arguments["expect_version"]
        if call.is_done and call.version != expected + call.is_change:
            text = f"{call.words()} was based on {expected} and made {call.version}"
            yield _problem("missed_conflict", call, text)
        elif call.code == "stale_write" and call.version <= expected:
            text = f"{call.words()} expected {expected} and lost to version {call.version}"
            yield _problem("wrong_conflict", call, text)
        elif call.code == "stale_write":
            yield from _told_problems(calls, call, expected)


def _told_problems(calls: Sequence[Call], conflict: Call, expected: int) -> Iterator[Problem]:
    """Look whether the changes that a conflict tells of are those that were made."""
    made = changes_by_version(calls)
    for number, told in enumerate(conflict.fields.get("changes", ()), start=expected + 1):
        change = made.get(number)
        is_right = told["version"] == number
        if is_right and change is not None:
            is_right = told["action"] == change.operation
            if change.operation == "patch" and "operations" in told:
                is_right = is_right and told["operations"] == change.arguments["ops"]
        if not is_right:
            text = f"{conflict.words()} was told of version {told['version']}, {told['action']}, wrongly"
            yield _problem("wrong_conflict", conflict, text)
            return


def _deletion_problems(calls: Sequence[Call]) -> Iterator[Problem]:
    """Look whether the handle was missing only when somebody may have deleted it."""
    begun = min(
        (call.started for call in calls if call.operation == "delete" and (call.is_done or call.is_unknown)),
        default=math.inf,
    )
    for call in calls:
        if call.code == "handle_not_found" and call.ended < begun:
            text = f"{call.words()} found no handle, and nobody had deleted it"
            yield _problem("wrong_not_found", call, text)


def _problem(kind: Kind, call: Call, what: str) -> Problem:
    return Problem(kind, call.handle, what)
