"""How a client recognises the store that it used before: a word among the daemon's capabilities.

    store=5f1c0a9be2d47766.1042

The store's own random name, and its newest revision when the client was welcomed; answers to shims tell
later ones. Revisions only grow, so a store of another name, or of an earlier revision, is not the one that
was there: it was replaced, or put back from a backup. The shim imports this module, so it must stay free of
typing and dataclasses.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFIX = "store="


def store_mark(store_id: str, revision: int) -> str:
    """Return the capability that names a store as it is now."""
    return f"{_PREFIX}{store_id}.{revision}"


def mark_in(capabilities: Iterable[str]) -> tuple[str, int] | None:
    """Return the store's name and revision as a daemon told them; None if it did not."""
    for capability in capabilities:
        if isinstance(capability, str) and capability.startswith(_PREFIX):
            name, _, revision = capability.removeprefix(_PREFIX).partition(".")
            if name and revision.isascii() and revision.isdigit():
                return name, int(revision)
    return None


def is_successor(found: tuple[str, int], known: tuple[str, int]) -> bool:
    """True if `found` can be the store that was `known`, later on."""
    return found[0] == known[0] and found[1] >= known[1]
