"""The daemon's log: one line an event, keys and values, in files of bounded size.

    2026-12-01T09:30:00.123Z info  session opened session=7 role=shim peer_pid=4711

Events are past tense and lower case. The content of a state never gets in: what libraries attach to
their errors is cut to the exception's name. A log that cannot be written stops nothing.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from logging.handlers import RotatingFileHandler
from typing import Literal

Level = Literal["debug", "info", "warning", "error"]
_LEVELS: dict[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def log_event(logger: logging.Logger, level: Level, event: str, **fields: object) -> None:
    """Write one event with its keys and values."""
    logger.log(_LEVELS[level], event, extra={"fields": fields})


class KeyValueFormatter(logging.Formatter):
    """Renders a record as time, level, event, fields."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        moment = f"{seconds}.{int(record.msecs):03d}Z"
        head = f"{moment} {record.levelname.lower():<7} {_printable(record.getMessage())}"
        fields: dict[str, object] = getattr(record, "fields", {})
        line = " ".join([head, *(f"{key}={_value(value)}" for key, value in fields.items())])
        if record.exc_info:
            ours = record.name.startswith("mcpstated")
            line += "\n" + self.formatException(record.exc_info) if ours else f" error={_kind(record)}"
        return line


class _LogFile(RotatingFileHandler):
    """A rotating file that keeps descriptors 1 and 2 on the current file if they were on the old one."""

    def doRollover(self) -> None:
        follows = [fd for fd in (1, 2) if self._is_this_file(fd)]
        super().doRollover()
        for fd in follows:
            if self.stream is not None:
                os.dup2(self.stream.fileno(), fd)

    def _is_this_file(self, fd: int) -> bool:
        if self.stream is None:
            return False
        try:
            mine, other = os.fstat(self.stream.fileno()), os.fstat(fd)
        except (OSError, ValueError):
            return False
        return (mine.st_dev, mine.st_ino) == (other.st_dev, other.st_ino)


def open_log(path: str, *, level: str, max_bytes: int, files: int, to_terminal: bool) -> None:
    """Send all logging of this process to `path`, and to stderr as well if asked.

    Args:
        max_bytes: Where a file ends and the next begins.
        files: How many are kept, the current one included.
    """
    logging.raiseExceptions = False
    handlers: list[logging.Handler] = []
    try:
        handlers.append(
            _LogFile(path, maxBytes=max_bytes, backupCount=files - 1, encoding="utf-8", delay=False)
        )
    except OSError as error:
        sys.stderr.write(f"mcpstated: the log {path} cannot be written: {error.strerror}\n")
    if to_terminal:
        handlers.append(logging.StreamHandler())
    formatter = KeyValueFormatter()
    root = logging.getLogger()
    for handler in handlers:
        handler.setFormatter(formatter)
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("mcpstated").setLevel(_LEVELS[level])
    for name in ("fastmcp", "mcp"):
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
        library.setLevel(logging.WARNING)


def close_log() -> None:
    """Take back what `open_log` did (tests open many)."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler.formatter, KeyValueFormatter):
            root.removeHandler(handler)
            handler.close()


def _value(value: object) -> str:
    text = _printable(str(value))
    return f'"{text}"' if " " in text or not text else text


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _kind(record: logging.LogRecord) -> str:
    assert record.exc_info
    return record.exc_info[0].__name__ if record.exc_info[0] else "unknown"
