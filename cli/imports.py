"""Where `mcpstated import` takes handles from: an export's lines, or a database of mcpstate.

Each source gives records, and in the place of one that cannot be read a `Refused` that says why. Nothing
is read ahead: an export may be larger than memory.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import quote

from mcpstated.protocol.documents import parse
from mcpstated.protocol.errors import InvalidInput, McpStateError
from mcpstated.protocol.handle_record import LEVELS_AROUND, HandleRecord, record_from_json
from mcpstated.protocol.limits import MIB, Limits

if TYPE_CHECKING:
    import apsw

FORMAT = "mcpstated-export"
FORMAT_VERSION = 1
MCPSTATE_DATABASE = "~/.mcpstate/state.db"
"""Where mcpstate keeps its store unless it is told otherwise."""
_GZIP = b"\x1f\x8b"
_MAX_LINE_BYTES = 64 * MIB
_KEPT_LIMITS = replace(Limits(), max_state_bytes=_MAX_LINE_BYTES, max_depth=100_000)
"""The daemon has the last word on every document; what is read here only has to be JSON."""
_FOREIGN_KIND = re.compile(r"[^a-z0-9-]+")
_MAX_KIND_CHARS = 32


@dataclass(frozen=True, slots=True)
class Refused:
    """Something in a source that is no handle."""

    where: str
    """A line number or a handle."""
    reason: str


Item = HandleRecord | Refused


@contextmanager
def lines_of(path: str) -> Iterator[Iterator[bytes]]:
    """Give the lines of a file, compressed or not; `-` is standard input.

    Raises:
        OSError: It cannot be opened.
    """
    with contextlib.ExitStack() as stack:
        if path == "-":
            raw: IO[bytes] = sys.stdin.buffer
        else:
            raw = stack.enter_context(Path(path).open("rb"))
        head = raw.peek(2)[:2] if hasattr(raw, "peek") else b""
        source = stack.enter_context(gzip.open(raw)) if head == _GZIP else raw
        yield _bounded_lines(cast("IO[bytes]", source))


def records_of_export(lines: Iterator[bytes]) -> Iterator[Item]:
    """Return the handles of an export.

    Raises:
        InvalidInput: It does not begin like an export, or comes from a newer version.
    """
    header = _object_in(next(lines, b""))
    if header.get("format") != FORMAT:
        raise InvalidInput(
            "This is no export of mcpstated: its first line does not say so. `mcpstated export` makes one; "
            "a database of mcpstate is taken over with --from-mcpstate.",
            field="file",
        )
    version = header.get("version")
    if version != FORMAT_VERSION:
        raise InvalidInput(
            f"This export has format version {version} and this program reads version {FORMAT_VERSION}: "
            "upgrade it.",
            field="file",
        )
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        try:
            yield record_from_json(_parsed(line), limits=_KEPT_LIMITS)
        except McpStateError as error:
            yield Refused(f"line {number}", error.message)


@contextmanager
def mcpstate_database(path: Path) -> Iterator[apsw.Connection]:
    """Open a database of mcpstate for reading, as it is and while it is in use.

    Raises:
        InvalidInput: There is none, or it has another shape.
    """
    import apsw

    if not path.is_file():
        raise InvalidInput(f"There is no database of mcpstate at {path}.", field="file")
    try:
        url = f"file:{quote(str(path.resolve()))}?mode=ro"
        db = apsw.Connection(url, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            db.set_busy_timeout(5_000)
            db.execute(_MCPSTATE_ROWS + " LIMIT 0").fetchall()
            yield db
        finally:
            db.close()
    except apsw.Error as error:
        raise InvalidInput(
            f"{path} cannot be read as a database of mcpstate: {error}.", field="file"
        ) from error


_MCPSTATE_ROWS = (
    "SELECT user, handle, kind, state, version, created_at, updated_at, expires_at, last_writer FROM handles"
)


def records_of_mcpstate(db: apsw.Connection) -> Iterator[Item]:
    """Return the handles of a database of mcpstate, by user."""
    rows: Any = db.execute(_MCPSTATE_ROWS + " ORDER BY user, handle")
    for user, handle, kind, state, version, created_at, updated_at, expires_at, writer in rows:
        try:
            yield record_from_json(
                {
                    "space": "agent",
                    "user": user,
                    "handle": handle,
                    "kind": kind_of(kind),
                    "version": version,
                    "created_at": created_at,
                    "updated_at": updated_at,
                    "expires_at": expires_at,
                    "ttl_days": _ttl_days(updated_at, expires_at),
                    "last_writer": writer or "",
                    "state": _parsed(state),
                },
                limits=_KEPT_LIMITS,
            )
        except McpStateError as error:
            yield Refused(str(handle), error.message)


def kind_of(kind: object) -> str:
    """Return a kind of ours that is as near as possible to one of mcpstate, which takes any text."""
    near = _FOREIGN_KIND.sub("-", str(kind or "").lower()).strip("-")[:_MAX_KIND_CHARS]
    return near if near[:1].isalpha() else f"k-{near}".rstrip("-")[:_MAX_KIND_CHARS] if near else "state"


def _ttl_days(updated_at: object, expires_at: object) -> float | None:
    """Return the time to live that led to an expiry, as far as it can be told."""
    if not isinstance(updated_at, int | float) or not isinstance(expires_at, int | float):
        return None
    days = (expires_at - updated_at) / 86_400
    return days if 0 < days <= Limits().max_ttl_days else None


def _bounded_lines(source: IO[bytes]) -> Iterator[bytes]:
    try:
        while line := source.readline(_MAX_LINE_BYTES + 1):
            if len(line) > _MAX_LINE_BYTES:
                raise InvalidInput(f"A line has more than {_MAX_LINE_BYTES // MIB} MiB.", field="file")
            yield line
    except (EOFError, gzip.BadGzipFile) as error:
        raise InvalidInput(f"The compressed file is damaged or ends early: {error}.", field="file") from error


def _parsed(text: bytes | str) -> dict[str, Any]:
    limits = replace(_KEPT_LIMITS, max_depth=_KEPT_LIMITS.max_depth + LEVELS_AROUND)
    return cast("dict[str, Any]", parse(text, field="line", limits=limits))


def _object_in(line: bytes) -> dict[str, Any]:
    try:
        value = _parsed(line)
    except McpStateError:
        return {}
    return value if isinstance(value, dict) else {}
