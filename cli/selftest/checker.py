"""Whether the history of one handle is linearizable and complete, from what its clients saw alone.

    versions    every change has one version, every version one change, in the order of time
    replay      what was seen at each version is what the changes up to it make
    items       what was acknowledged is there, once; what was refused is not
    metadata    a version says the same of itself to everyone

A handle can be judged for itself: what holds for each holds for all. The calls of one handle are all that is
needed, in any order; loads of older versions, if there are any, say more about what happened between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mcpstated.cli.selftest.documents import part_at
from mcpstated.cli.selftest.history import Call
from mcpstated.cli.selftest.problems import Problem
from mcpstated.cli.selftest.replay import replay_problem
from mcpstated.cli.selftest.versions import version_problems

ITEMS = "items"
"""Where the clients append, and from where nobody ever takes anything away."""
_FACE = ("title", "created_at", "updated_at", "expires_at", "last_writer", "size_bytes")


def check(calls: Sequence[Call]) -> list[Problem]:
    """Return everything that is wrong with the history of one handle."""
    if not calls:
        return []
    problems = [*version_problems(calls), *item_problems(calls), *metadata_problems(calls)]
    replayed = replay_problem(calls)
    return problems if replayed is None else [*problems, replayed]


def item_problems(calls: Sequence[Call]) -> Iterator[Problem]:
    """Yield every item that is missing where it must be, or there more often than once, or must not be."""
    handle = calls[0].handle
    made = {item: call for call in calls if call.is_change for item in call.appended}
    refused = {
        item for call in calls if not call.is_done and not call.is_unknown for item in call.appended
    } - made.keys()
    lost: set[str] = set()
    doubled: set[str] = set()
    ghosts: set[str] = set()
    for call in calls:
        items = _items_seen(call)
        if items is None or call.version is None:
            continue
        count = Counter(items)
        doubled.update(item for item, times in count.items() if times > 1)
        ghosts.update(refused & count.keys())
        lost.update(
            item for item, by in made.items() if item not in count and (by.version or 0) <= call.version
        )
    for item in sorted(lost):
        yield Problem("lost", handle, f"{item}, acknowledged as version {made[item].version}, is not there")
    for item in sorted(doubled):
        yield Problem("doubled", handle, f"{item} is there more than once")
    for item in sorted(ghosts):
        yield Problem("ghost", handle, f"{item} is there, although the call was refused")


def metadata_problems(calls: Sequence[Call]) -> Iterator[Problem]:
    """Yield each version of which two calls were told different things."""
    faces: dict[tuple[int, str], tuple[Call, object]] = {}
    told: set[int] = set()
    for call in calls:
        if call.version is None or call.version in told:
            continue
        for name in _FACE:
            if name not in call.fields:
                continue
            first, value = faces.setdefault((call.version, name), (call, call.fields[name]))
            if value != call.fields[name]:
                text = (
                    f"{name} of version {call.version} is {value!r} for {first.words()} "
                    f"and {call.fields[name]!r} for {call.words()}"
                )
                yield Problem("metadata", call.handle, text)
                told.add(call.version)
                break


def _items_seen(call: Call) -> list[str] | None:
    """Return all items of the version that a call names, if it saw them."""
    if "state" not in call.fields:
        return None
    path = call.arguments.get("path", "") if call.operation == "load" else ""
    if path not in ("", ITEMS):
        return None
    items: list[str] = call.fields["state"] if path else part_at(call.fields["state"], ITEMS)
    return items
