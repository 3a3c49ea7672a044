"""The command `mcpstated`: which commands there are, and what happens around each of them.

A command's module is imported when it is asked for; it returns a `Result`, which is printed here, once.
Errors become results too, whether they come from a command or before one runs.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

import mcpstated
from mcpstated.cli.exit_codes import ExitCode
from mcpstated.cli.options import Invocation, data_dir_option
from mcpstated.cli.result import Result

COMMANDS = {
    "shim": "Relay one MCP client's stdio to the daemon.",
    "daemon": "Run the daemon in the foreground.",
    "status": "Show whether the daemon runs, and what it holds.",
    "stop": "Stop the daemon, and wait until it is gone.",
    "restart": "Replace the daemon by one of this version.",
    "list": "List handles, newest change first.",
    "show": "Show a handle and the state behind it.",
    "delete": "Delete a handle and its state.",
    "trash": "List deleted handles, bring one back, or empty the trash.",
    "backup": "Back the store up, now.",
    "restore": "Put a backup in the place of the store.",
    "verify": "Examine the store, or a backup.",
    "export": "Write handles as lines of JSON.",
    "import": "Take handles over from an export, or from mcpstate.",
    "paths": "Show where everything lies.",
    "logs": "Show the end of the daemon's log.",
    "selftest": "Torture a store of its own, and check what comes of it.",
    "demo": "Watch two clients share a state; takes seconds.",
    "completion": "Print the completion script of a shell.",
}
"""In the order of the help; each is `command` in `mcpstated.cli.commands.<name>`."""
MODULES = {"import": "import_handles"}
"""Modules that cannot have the name of their command."""


class Program(click.Group):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):  # from the table: the help need not import them all
            formatter.write_dl(list(COMMANDS.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mcpstated.cli.commands.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        return command

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> int:
        """Run one command line and print its result.

        Returns:
            The exit code, unless `standalone_mode` is set; then the process exits with it.
        """
        words = list(sys.argv[1:] if args is None else args)
        invocation = Invocation()
        code = self._run(words, prog_name or "mcpstated", complete_var, {"obj": invocation, **extra})
        if standalone_mode:
            sys.exit(code)
        return code

    def _run(self, words: list[str], prog_name: str, complete_var: str | None, extra: dict[str, Any]) -> int:
        invocation: Invocation = extra["obj"]
        try:
            outcome = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
            if not isinstance(outcome, Result):
                return int(outcome or 0)  # help and version print themselves
            result, as_json = outcome, invocation.as_json
        except (click.Abort, BaseExceptionGroup) as error:
            if isinstance(error, BaseExceptionGroup) and error.split(KeyboardInterrupt)[1] is not None:
                raise
            from mcpstated.cli.failures import interrupted

            result, as_json = interrupted(command_name(words)), wants_json(words)
        except Exception as error:
            from mcpstated.cli.failures import failure

            # Raises again what is no error of the user's, the daemon's or the system's: that is our bug.
            result, as_json = failure(command_name(words), error), wants_json(words)
        from mcpstated.cli.render import render

        try:
            render(result, as_json=as_json)
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            _forget_stdout()  # `mcpstated list | head -1`: nobody reads the rest
            return ExitCode.FAILED
        return int(result.exit_code)


def command_name(words: Sequence[str]) -> str:
    """Return the command that a command line names, or "" if it names none."""
    return next((word for word in words if word in COMMANDS), "")


def wants_json(words: Sequence[str]) -> bool:
    """Tell whether a command line asks for JSON, even one that cannot be parsed."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def _forget_stdout() -> None:
    """Let the interpreter's last flush go nowhere, so that it does not complain on stderr."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.version_option(mcpstated.__version__, prog_name="mcpstated")
@data_dir_option
@click.pass_context
def program(ctx: click.Context) -> None:
    """Durable state for MCP clients: one small daemon, many tiny shims.

    A client starts `mcpstated shim`; the daemon starts by itself and holds the store.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> int:
    """Run the command line of this process and return its exit code."""
    return program.main(standalone_mode=False)
