"""The daemon's settings: flag, then environment, then `config.toml`, then default.

Pure: it takes what others read (an environment, the text of the file, the flags) and returns one
frozen value and the complaints that belong into the log. Empty means default. What a shim needs of
the environment (paths, user, writer) is in `paths` and in `mcpstated.launch`.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.paths import Paths, absolute_path, paths_from_environment

DEFAULT_USER = "local"
LOG_LEVELS = ("debug", "info", "warning", "error")

ENVIRONMENT: dict[str, str] = {
    "MCPSTATED_DATA_DIR": "Directory of the store; absolute, `~` is expanded.",
    "MCPSTATED_SOCKET": "Path of the Unix socket; default `daemon.sock` in the data directory.",
    "MCPSTATED_BACKEND": "`sqlite:///PATH` of the database; default `state.db` in the data directory.",
    "MCPSTATED_USER": "The user whose state a client sees; default `local`.",
    "MCPSTATED_WRITER": "The label that is written beside changes; default host/client.",
    "MCPSTATED_MAX_STATE_BYTES": "Largest document in bytes.",
    "MCPSTATED_IDLE_SECONDS": "Seconds without sessions after which the daemon leaves; 0 means never.",
    "MCPSTATED_LOG_LEVEL": "debug, info, warning or error.",
    "MCPSTATED_NO_SPAWN": "If set, no client starts a daemon.",
    "MCPSTATED_FAILPOINTS": "For tests: moments at which the daemon dies, fails or stops.",
}
"""Every variable that is understood, with what it means."""

MCPSTATE_NAMES = ("MCPSTATE_BACKEND", "MCPSTATE_USER", "MCPSTATE_WRITER", "MCPSTATE_MAX_STATE_BYTES")
"""Names of mcpstate that are understood where the MCPSTATED_ one is not set."""


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """Everything that one daemon is told from outside."""

    paths: Paths
    database: str
    """Absolute path of the SQLite file."""
    limits: Limits
    idle_seconds: float
    """Seconds without sessions after which the daemon leaves; infinity means never."""
    log_level: str
    default_user: str
    complaints: tuple[str, ...]
    """Names that nobody knows, one sentence each."""


MAY_BE_ZERO = frozenset({"trash_days", "backup_hours", "reserve_bytes"})
"""Limits that can be switched off; every other one is at least 1."""


def variable(environ: Mapping[str, str], name: str) -> str:
    """Return MCPSTATED_`name`, else mcpstate's name for it, else the empty string."""
    value = environ.get(f"MCPSTATED_{name}") or ""
    if not value and f"MCPSTATE_{name}" in MCPSTATE_NAMES:
        value = environ.get(f"MCPSTATE_{name}") or ""
    return value


def settings_from(
    environ: Mapping[str, str],
    config_text: str | None = None,
    flags: Mapping[str, str | float | None] | None = None,
) -> DaemonSettings:
    """Return the settings of a daemon.

    Args:
        environ: The process environment.
        config_text: The text of `config.toml`, or None if there is none.
        flags: `data_dir`, `idle_seconds`, `log_level` as given on the command line; None means not given.

    Raises:
        InvalidInput: A value cannot be used; `field` names the flag, variable or key.
    """
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    paths = paths_from_environment(environ, data_dir=str(given.get("data_dir") or ""))
    daemon_table, limits_table, complaints = _read_config(config_text)
    complaints += _unknown_variables(environ)

    backend = variable(environ, "BACKEND") or str(daemon_table.get("backend") or "")
    idle = given.get(
        "idle_seconds", environ.get("MCPSTATED_IDLE_SECONDS") or daemon_table.get("idle_seconds", 900)
    )
    level = str(
        given.get("log_level")
        or environ.get("MCPSTATED_LOG_LEVEL")
        or daemon_table.get("log_level")
        or "info"
    )
    if level not in LOG_LEVELS:
        raise InvalidInput(
            f"log_level must be one of {', '.join(LOG_LEVELS)}, got {level!r}.", field="log_level"
        )
    idle_seconds = _number(idle, field="idle_seconds", least=0)
    limits = _limits(limits_table, variable(environ, "MAX_STATE_BYTES"))
    return DaemonSettings(
        paths=paths,
        database=_database(backend, environ) if backend else paths.database,
        limits=limits,
        idle_seconds=idle_seconds or math.inf,
        log_level=level,
        default_user=DEFAULT_USER,
        complaints=tuple(complaints),
    )


def _read_config(text: str | None) -> tuple[dict[str, object], dict[str, object], list[str]]:
    if text is None:
        return {}, {}, []
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"config.toml cannot be read: {error}.", field="config.toml") from error
    known = {"daemon": {"backend", "idle_seconds", "log_level"}, "limits": set(Limits.__dataclass_fields__)}
    complaints = []
    tables: dict[str, dict[str, object]] = {"daemon": {}, "limits": {}}
    for name, table in config.items():
        if name not in known or not isinstance(table, dict):
            complaints.append(f"config.toml: [{name}] is not a known section")
            continue
        for key, value in table.items():
            if key in known[name]:
                tables[name][key] = value
            else:
                complaints.append(f"config.toml: {name}.{key} is not a known setting")
    return tables["daemon"], tables["limits"], complaints


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    return [
        f"the environment variable {name} is not a known setting"
        for name in sorted(environ)
        if name.startswith("MCPSTATED_") and name not in ENVIRONMENT
    ]


def _limits(table: Mapping[str, object], max_state_bytes: str) -> Limits:
    values: dict[str, float] = {}
    for field in dataclasses.fields(Limits):
        if field.name in table:
            least = 0 if field.name in MAY_BE_ZERO else 1
            value = _number(table[field.name], field=f"limits.{field.name}", least=least)
            values[field.name] = value if field.type == "float" else int(value)
    if max_state_bytes:
        values["max_state_bytes"] = int(_number(max_state_bytes, field="MCPSTATED_MAX_STATE_BYTES", least=1))
    limits = Limits(**values)  # type: ignore[arg-type]
    # A reply carries a document twice, as text and as structure, and must fit one frame.
    largest = limits.max_frame_bytes // 4
    if limits.max_state_bytes > largest:
        raise InvalidInput(
            f"max_state_bytes may be at most {largest}, a quarter of max_frame_bytes.",
            field="max_state_bytes",
        )
    return limits


def _database(url: str, environ: Mapping[str, str]) -> str:
    prefix = "sqlite:///"
    if not url.startswith(prefix):
        raise InvalidInput("The backend must be given as sqlite:///PATH.", field="backend")
    path = url[len(prefix) :]  # an absolute path makes it four slashes: sqlite:////home/me/state.db
    return absolute_path(path, field="backend", home=environ.get("HOME") or "/")


def _number(value: object, *, field: str, least: float) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        number = float(value)
        if not math.isfinite(number) or number < least:
            raise ValueError
    except ValueError:
        raise InvalidInput(
            f"{field} must be a number of at least {least:g}, got {value!r}.", field=field
        ) from None
    return number
