"""`mcpstated completion`: teach a shell the commands, options and handles."""

from __future__ import annotations

import click

from mcpstated.cli.blocks import Verbatim
from mcpstated.cli.result import Result

_WHERE = {
    "bash": 'eval "$(mcpstated completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(mcpstated completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "mcpstated completion fish > ~/.config/fish/completions/mcpstated.fish",
}
_HELP = "Print the completion script of a shell.\n\n\b\n" + "\n".join(_WHERE.values())


@click.command("completion", help=_HELP)
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> Result:
    from click.shell_completion import get_completion_class

    root = ctx.find_root()
    complete = get_completion_class(shell)
    assert complete is not None  # click has all that Choice lets through
    program, variable = "mcpstated", "_MCPSTATED_COMPLETE"
    script = complete(root.command, {}, program, variable).source()
    return Result("completion", data={"shell": shell, "script": script}, blocks=(Verbatim(script),))
