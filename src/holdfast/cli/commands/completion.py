"""`holdfast completion`: the shell script that completes commands, options, sessions and checkpoints."""

from __future__ import annotations

import click

from holdfast.cli.main import COMPLETING
from holdfast.cli.options import json_option
from holdfast.cli.output.listing import print_result


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion(ctx: click.Context, shell: str, as_json: bool) -> None:
    """Print the script that makes SHELL complete commands, options, sessions and checkpoints.

    \b
    bash  echo 'eval "$(holdfast completion bash)"' >> ~/.bashrc
    zsh   echo 'eval "$(holdfast completion zsh)"' >> ~/.zshrc
    fish  holdfast completion fish > ~/.config/fish/completions/holdfast.fish

    Sessions and checkpoints are those of the store that the command would use.
    """  # noqa: D301 - \b is click's mark for text that must not be rewrapped
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "holdfast", COMPLETING).source()
    print_result({"shell": shell, "script": script}, script, as_json=as_json)
