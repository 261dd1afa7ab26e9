"""`leporello completion`: Tab completes commands and options in the user's shell."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

_VARIABLE: Final = "_LEPORELLO_COMPLETE"
_FILES: Final = {
    "bash": (".local/share/bash-completion/completions/leporello", "It needs the package bash-completion."),
    "fish": (".config/fish/completions/leporello.fish", ""),
    "zsh": (".zfunc/_leporello", "Before compinit, ~/.zshrc needs this line: fpath+=~/.zfunc"),
}
"""Where a user's shell looks for completions, below the home folder, and what it needs besides."""


@click.command()
@click.argument("shell", type=click.Choice(sorted(_FILES)), required=False)
@click.option("--install", is_flag=True, help="Write it where the shell finds it, instead of printing it.")
def command(shell: str | None, install: bool) -> None:
    """Print the script with which SHELL completes commands and options on Tab; default: your own shell.

    Examples: leporello completion --install, leporello completion zsh > _leporello
    """
    from leporello.cli.main import commands

    name = shell or _own_shell()
    kind = get_completion_class(name) if name in _FILES else None
    if kind is None:
        raise click.UsageError(f"name the shell, one of {', '.join(sorted(_FILES))}: leporello completion bash")
    source = kind(commands, {}, "leporello", _VARIABLE).source()
    if not install:
        click.echo(source)
        return
    place, needed = _FILES[name]
    file = Path.home() / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    click.echo(f"wrote {file}; a new {name} completes `leporello` with Tab. {needed}".rstrip())


def _own_shell() -> str:
    """Return the name of the user's shell: of `$SHELL`, else of the account, as cron and containers leave it unset."""
    path = os.environ.get("SHELL", "")
    if not path:
        try:
            path = pwd.getpwuid(os.getuid()).pw_shell
        except KeyError:
            return ""
    return Path(path).name
