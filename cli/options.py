"""The options that commands share, and where what they say is kept.

`--data-dir` may stand before the command or after it; the one after it wins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from mcpstated.protocol.paths import Paths, paths_from_environment

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(slots=True)
class Invocation:
    """What the shared options of one command line said; changed only while it is parsed."""

    as_json: bool = False
    data_dir: str | None = None
    user: str | None = None

    def environ(self) -> Mapping[str, str]:
        """Return the environment with the options over it, as everything below the commands takes it."""
        environ = dict(os.environ)
        if self.data_dir:
            environ["MCPSTATED_DATA_DIR"] = self.data_dir
        if self.user is not None:
            environ["MCPSTATED_USER"] = self.user
        return environ

    def paths(self) -> Paths:
        """Return where the store of this command line lies.

        Raises:
            InvalidInput: The path is relative or holds an unexpanded variable.
        """
        return paths_from_environment(os.environ, data_dir=self.data_dir)


def invocation_of(ctx: click.Context) -> Invocation:
    """Return the invocation that belongs to a context."""
    return ctx.find_root().ensure_object(Invocation)


def pass_invocation(function: Callable[..., _R]) -> Callable[..., _R]:
    """Give the command the invocation as its first argument."""
    return click.make_pass_decorator(Invocation, ensure=True)(function)


def json_option(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add `--json`."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_keep_json,
        help="Print one JSON object: result_version, command, status, exit_code, data, errors.",
    )(function)


def data_dir_option(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add `--data-dir`."""
    return click.option(
        "--data-dir",
        metavar="DIR",
        type=click.Path(file_okay=False),
        expose_value=False,
        callback=_keep_data_dir,
        help="Directory of the store (absolute).  [env: MCPSTATED_DATA_DIR]",
    )(function)


def user_option(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add `--user`."""
    return click.option(
        "--user",
        metavar="NAME",
        expose_value=False,
        callback=_keep_user,
        help="Whose state.  [env: MCPSTATED_USER, MCPSTATE_USER; default: local]",
    )(function)


def handle_argument(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add the argument HANDLE, completed from what a running daemon holds."""
    return click.argument("handle", shell_complete=_complete_handle)(function)


def _keep_json(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    invocation_of(ctx).as_json = value


def _keep_data_dir(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        invocation_of(ctx).data_dir = value


def _keep_user(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        invocation_of(ctx).user = value


def _complete_handle(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from mcpstated.cli.handles import complete_handles

    return complete_handles(invocation_of(ctx), incomplete)
