"""The lines of an export, as `mcpstated import` reads them.

They give records, and in the place of one that cannot be read a `Refused` that says why. Nothing is read
ahead: an export may be larger than memory.
"""

from __future__ import annotations

import contextlib
import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

from mcpstated.protocol.documents import parse
from mcpstated.protocol.errors import InvalidInput, McpStateError
from mcpstated.protocol.handle_record import (
    FORMAT,
    FORMAT_VERSION,
    LEVELS_AROUND,
    HandleRecord,
    Refused,
    record_from_json,
)
from mcpstated.protocol.limits import MIB, Limits

_GZIP = b"\x1f\x8b"
_MAX_LINE_BYTES = 64 * MIB
_KEPT_LIMITS = replace(Limits(), max_state_bytes=_MAX_LINE_BYTES, max_depth=100_000)
"""The daemon has the last word on every document; what is read here only has to be JSON."""


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


def records_of_export(lines: Iterator[bytes]) -> Iterator[HandleRecord | Refused]:
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


def _bounded_lines(source: IO[bytes]) -> Iterator[bytes]:
    try:
        while line := source.readline(_MAX_LINE_BYTES + 1):
            if len(line) > _MAX_LINE_BYTES:
                raise InvalidInput(f"A line has more than {_MAX_LINE_BYTES // MIB} MiB.", field="file")
            yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
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
