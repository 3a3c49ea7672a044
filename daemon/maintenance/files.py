"""Opening databases for maintenance, and making files that are there whole or not at all."""

from __future__ import annotations

import fcntl
import gzip
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import quote

import apsw

from mcpstated.daemon.backends.opening import BUSY_TIMEOUT_MS, check_header, refusal
from mcpstated.daemon.backends.schema import check_identity
from mcpstated.protocol.errors import InvalidInput

GZIP_MAGIC = b"\x1f\x8b"
_COMPRESSION = 3
"""Of gzip: near the size of the best, in a third of its time."""
_COPY_BYTES = 1 << 20


@contextmanager
def open_read_only(
    path: Path, *, is_alone: bool = False, named: Path | None = None
) -> Iterator[apsw.Connection]:
    """Open a store for reading, whether a daemon has it or not.

    Args:
        is_alone: Nobody else has the file and it has no log; then nothing is made beside it.
        named: What to call it.

    Raises:
        StoreRefused: It is no store of ours, it is too new, or it cannot be opened.
    """
    is_frozen = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    query = "mode=ro&immutable=1" if is_alone or is_frozen else "mode=ro"
    named = named or path
    check_header(path, named)
    try:
        db = apsw.Connection(
            f"file:{quote(str(path))}?{query}", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        try:
            db.set_busy_timeout(BUSY_TIMEOUT_MS)
            db.pragma("trusted_schema", "OFF")
            check_identity(db, str(named))
            yield db
        finally:
            db.close()
    except apsw.Error as error:
        raise refusal(named, error) from error


def is_compressed(path: Path) -> bool:
    """Tell whether a file is a gzip file. Raises: OSError."""
    with path.open("rb") as stream:
        return stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def unpack(source: Path, target: Path) -> None:
    """Copy a file, uncompressed, and flush it to the disk; there is nothing at the target if it fails.

    Raises:
        InvalidInput: The compressed file is damaged.
        OSError: The disk is full, or a file cannot be read.
    """
    try:
        with new_file(target) as out:
            if is_compressed(source):
                with gzip.open(source) as stream:
                    shutil.copyfileobj(stream, out, _COPY_BYTES)
            else:
                with source.open("rb") as plain:
                    shutil.copyfileobj(plain, out, _COPY_BYTES)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        target.unlink(missing_ok=True)
        raise InvalidInput(f"{source} is damaged or ends early: {error}.", field="file") from error
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def pack(source: Path, target: Path) -> None:
    """Copy a file, compressed if the target's name says so, and flush it to the disk. Raises: OSError."""
    try:
        with new_file(target) as out, source.open("rb") as stream:
            if is_packed_name(target):
                with gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=_COMPRESSION) as packed:
                    shutil.copyfileobj(stream, packed, _COPY_BYTES)
            else:
                shutil.copyfileobj(stream, out, _COPY_BYTES)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def is_packed_name(path: Path) -> bool:
    """Tell whether a backup of that name is compressed: unless it ends with `.db`, but for a `.part`."""
    return Path(path.name.removesuffix(".part")).suffix != ".db"


def put_in_place(part: Path, target: Path, *, may_replace: bool) -> None:
    """Give a finished file its name, durably.

    Raises:
        FileExistsError: There is one of that name and it may not be replaced.
    """
    if may_replace:
        part.rename(target)
    else:
        try:
            os.link(part, target)
        except FileExistsError:
            raise
        except OSError:  # FAT and many network file systems know no second names
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            part.rename(target)
        else:
            part.unlink()
    flush_directory(target.parent)


def flush_directory(directory: Path) -> None:
    """Make what was renamed, linked or removed in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)


def flush(descriptor: int) -> None:
    """Make a file or a directory durable; on macOS in the drive's own cache as well. Raises: OSError."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with suppress(OSError):  # a file system that does not know it
            fcntl.fcntl(descriptor, full)
            return
    os.fsync(descriptor)


def remove(*paths: Path) -> None:
    """Remove files of ours that may be there."""
    for path in paths:
        with suppress(OSError):
            path.unlink()


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Give a new, private file to write to, in the place of one that may be there; flushed at the end."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        yield stream
        stream.flush()
        flush(stream.fileno())
