"""What must hold: the promises of the design and the reported cases that the tests prove, by id.

A test names the ids that it proves with `@pytest.mark.requirement("P4", "C32")`. `test_requirements.py`
holds both sides together: no id without a test, no test with an id that is not here. Cases of later
parts (hardening of durability, installing) join this list together with their tests.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """One sentence that must be true, and where it comes from."""

    sentence: str
    source: str


PROMISE = "the design's promises"
REPORT = "reports about tools that do this job or a neighbouring one"

REQUIREMENTS: dict[str, Requirement] = {
    "P1": Requirement(
        "A write that was acknowledged survives SIGKILL of shim, daemon and client, an OS crash and a "
        "power cut.",
        PROMISE,
    ),
    "P2": Requirement(
        "A tool call is applied at most once, and exactly once if it was acknowledged, whatever "
        "happens to the daemon meanwhile; where the outcome is not known, the error says so.",
        PROMISE,
    ),
    "P3": Requirement(
        "Versions of a handle rise by one per effective change, in one order for everyone, and a read "
        "returns the newest durable state.",
        PROMISE,
    ),
    "P4": Requirement(
        "Every commutative patch lands without retry, and a versioned save that lost gets a conflict "
        "that can be acted on.",
        PROMISE,
    ),
    "P5": Requirement(
        "One user can neither read, list, guess nor time another user's state.",
        PROMISE,
    ),
    "P6": Requirement(
        "Memory, frames, nesting, documents, history, logs and waits have named limits, and passing "
        "one gives one clear error.",
        PROMISE,
    ),
    "P7": Requirement(
        "A client that stalls, floods, dies or lies costs only itself.",
        PROMISE,
    ),
    "P8": Requirement(
        "The shim starts and stays near a bare interpreter, and a patch costs what it changes.",
        PROMISE,
    ),
    "C01": Requirement(
        "A call that its daemon died of, before or after it was stored, is answered, and applied at most "
        "once; where nobody can know, the answer says so.",
        REPORT,
    ),
    "C02": Requirement(
        "One shim goes on over any number of killed daemons without a new handshake; its waits are "
        "bounded, and no failure is remembered for the next call.",
        REPORT,
    ),
    "C03": Requirement(
        "Clients with a full, an empty and a foreign environment share one daemon and one state.",
        REPORT,
    ),
    "C04": Requirement(
        "A second daemon exits and changes nothing, a slow daemon is not taken for dead, and only a "
        "dead socket is ever removed.",
        REPORT,
    ),
    "C05": Requirement(
        "A reader that is slow on one socketpair for stdin and stdout gets whole lines, and no "
        "descriptor flag changes.",
        REPORT,
    ),
    "C06": Requirement(
        "An unknown argument is not stored, and a misspelled one is named instead of overwriting anything.",
        REPORT,
    ),
    "C07": Requirement(
        "JSON text is decoded once where the schema says object or array; strings inside a state stay "
        "as they are.",
        REPORT,
    ),
    "C08": Requirement(
        "Loosely typed arguments are understood or refused by one rule, and the version check is "
        "never skipped.",
        REPORT,
    ),
    "C09": Requirement(
        "A backup, another program's read and a kill take nothing away, and no file in use is unlinked.",
        REPORT,
    ),
    "C10": Requirement(
        "Thirty shims that start at once with no daemon share exactly one, and each gets its answer.",
        REPORT,
    ),
    "C11": Requirement(
        "Nesting has one limit on every way in; nothing is stored that cannot be loaded again.",
        REPORT,
    ),
    "C12": Requirement(
        "A stop under load, hurried or not, or during a migration, ends in time and leaves exactly the "
        "acknowledged writes and whole unacknowledged ones.",
        REPORT,
    ),
    "C13": Requirement(
        "A shim whose parent is gone leaves, although somebody still holds its stdin; the daemon stays.",
        REPORT,
    ),
    "C14": Requirement(
        "A save on an old version is stale_write each time, and never brings a deleted handle back.",
        REPORT,
    ),
    "C15": Requirement(
        "Failures are tool results that fit the advertised schema, text first; an unknown tool is -32602.",
        REPORT,
    ),
    "C16": Requirement(
        "A client that comes at the moment in which an idle daemon leaves is served all the same.",
        REPORT,
    ),
    "C17": Requirement(
        "Input that ends right after the last call is answered in full; signals end the shim quietly.",
        REPORT,
    ),
    "C18": Requirement(
        "A store that is removed or replaced gets no acknowledged write, and none is made in its place.",
        REPORT,
    ),
    "C19": Requirement(
        "A daemon started by a shim holds none of its pipes or terminals and has default signals.",
        REPORT,
    ),
    "C20": Requirement(
        "Clients that never read, announce gibibytes, fall silent in a frame, die in a call or take all "
        "descriptors cost the others nothing but a moment, and the daemon bounded memory.",
        REPORT,
    ),
    "C21": Requirement(
        "An expired handle is expired for every operation, across restarts and clock steps.",
        REPORT,
    ),
    "C22": Requirement(
        "A full disk is storage_full with reads and deletes going on, and recovers by itself.",
        REPORT,
    ),
    "C23": Requirement(
        "A log left by a crash is recovered; what is no sound store is refused and left as it was.",
        REPORT,
    ),
    "C24": Requirement(
        "Impossible times to live are refused with the range, and no row ever breaks a list.",
        REPORT,
    ),
    "C25": Requirement(
        "A long read elsewhere lets the log grow with a warning, and it shrinks soon after.",
        REPORT,
    ),
    "C26": Requirement(
        "What durable means is read back from the settings and counted on the disk.",
        REPORT,
    ),
    "C27": Requirement(
        "An older schema is migrated once and whole, whoever starts and whatever dies; a newer one is "
        "refused and left as it is, with both versions named.",
        REPORT,
    ),
    "C28": Requirement(
        "Big lists and documents come in pages and parts, in stable order, with a hint instead of a flood.",
        REPORT,
    ),
    "C29": Requirement(
        "A path reaches exactly its target or fails with operation number and path; all operations of "
        "a call apply or none.",
        REPORT,
    ),
    "C31": Requirement(
        "The schemas keep to what every client accepts, and tool names stay short under a server's prefix.",
        REPORT,
    ),
    "C32": Requirement(
        "Under contention every acknowledged change is there once, and no patch fails for it.",
        REPORT,
    ),
    "C33": Requirement(
        "Lines end at the byte 0x0A only; other separators in a state come back unchanged.",
        REPORT,
    ),
    "C34": Requirement(
        "A change that changes nothing leaves version, writer and expiry alone.",
        REPORT,
    ),
    "C35": Requirement(
        "Another user's handle is answered like one that never was, by every tool.",
        REPORT,
    ),
    "C36": Requirement(
        "Broken lines get a JSON-RPC error and reading goes on; ids come back with value and type.",
        REPORT,
    ),
    "C37": Requirement(
        "Missing arguments are an empty object, a list is refused, undeclared methods get a prompt -32601.",
        REPORT,
    ),
    "C38": Requirement(
        "Every input schema is an object with properties, without unions at the top.",
        REPORT,
    ),
}
