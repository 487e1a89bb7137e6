"""pe completion: a script that teaches a shell to complete pe's commands, configs, runs and keys."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that completes with Tab in SHELL.

    It offers commands, options, configs, folders of runs, keys and values of -o, and names of layers.

    \b
    bash  add to ~/.bashrc:  eval "$(pe completion bash)"
    zsh   add to ~/.zshrc, after compinit:  eval "$(pe completion zsh)"
    fish  run once:  pe completion fish > ~/.config/fish/completions/pe.fish
    """  # noqa: D301 - the mark is click's, a character
    from click.shell_completion import get_completion_class

    from pe_cli.cli.completers import VARIABLE, register
    from pe_cli.cli.main import cli

    register()
    made = get_completion_class(shell)
    assert made
    click.echo(made(cli, {}, "pe", VARIABLE).source())
