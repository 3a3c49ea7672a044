"""From exceptions to results: which error a command ends with, and with which exit code."""

from __future__ import annotations

import click

from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.result import Problem, Result
from mcpstated.launch import DaemonNotRunning, VersionSkew
from mcpstated.protocol.errors import InvalidInput, McpStateError


def failure(command: str, error: Exception) -> Result:
    """Return the result of a command that ended with `error`.

    Args:
        error: A `click.ClickException`, `McpStateError` or `OSError`; anything else is raised again.
    """
    return Result(command, exit_code_of(error), errors=(problem_of(error),))


def exit_code_of(error: Exception) -> ExitCode:
    """Return the exit code that tells an error from others."""
    if isinstance(error, DaemonNotRunning):
        return ExitCode.DAEMON_NOT_RUNNING
    if isinstance(error, VersionSkew):
        return ExitCode.VERSION_SKEW
    if isinstance(error, click.UsageError | InvalidInput):
        return ExitCode.USAGE
    return ExitCode.FAILED


def problem_of(error: Exception) -> Problem:
    """Return an error as it is shown."""
    if isinstance(error, McpStateError):
        details = dict(error.details)
        hint = str(details.pop("hint", ""))
        return Problem(_code_of(error), error.message, details, hint)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return Problem("usage", "Say what to do.", hint=_help_hint(error))
    if isinstance(error, click.UsageError):
        return Problem("usage", error.format_message(), hint=_help_hint(error))
    if isinstance(error, click.ClickException):
        return Problem("failed", error.format_message())
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Problem("failed", f"{where}{error.strerror or error}.")
    raise error


def interrupted(command: str) -> Result:
    """Return the result of a command that Ctrl-C ended."""
    return Result(command, ExitCode.INTERRUPTED, errors=(Problem("interrupted", "Interrupted."),))


def _code_of(error: McpStateError) -> str:
    """Return the code of an error; two ways to have no daemon have exit codes, so they have codes too."""
    if isinstance(error, DaemonNotRunning):
        return "daemon_not_running"
    return "version_skew" if isinstance(error, VersionSkew) else error.code


def _help_hint(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "mcpstated"
    return f"See: {path} --help"
