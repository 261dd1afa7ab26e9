"""The `leporello` command: finds the command's file, turns our errors into one line and an exit code.

Exit codes: 0 done, 1 a check failed or nothing was found, 2 the user's mistake (arguments, configuration, a missing
extra).
"""

from __future__ import annotations

import difflib
import io
import shutil
import sys
import textwrap
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

import leporello
from leporello.errors import LeporelloError, LeporelloWarning

if TYPE_CHECKING:
    from collections.abc import Callable

# name -> what it does, for `--help` without importing the command's file
COMMANDS = {
    "backup": "Write a consistent copy of the store, while it is in use.",
    "chat": "Talk to a model; the conversation always fits its window.",
    "completion": "Complete commands and options in your shell with Tab.",
    "config": "Read, check and change config.yaml.",
    "demo": "Fold a long agent conversation before your eyes; no key needed.",
    "describe": "Describe a node, a message or a file of a stored conversation.",
    "doctor": "Say what is configured, what was found, and what is wrong.",
    "expand": "Print the original messages under a node, word for word.",
    "gc": "Delete what is older than you want to keep it; shows it first.",
    "grep": "Search every stored message, folded or not.",
    "hermes": "Use Leporello's engines inside Hermes Agent.",
    "import": "Read conversations of other programs, and exports, into the store.",
    "mcp": "Let MCP clients search and unfold a stored conversation.",
    "plugins": "Choose, list, create and check context engines.",
    "replay": "Drive context policies through transcripts: cost, what is kept, what is lost.",
    "serve": "Serve conversations over HTTP, to clients in any language.",
    "sessions": "List, show, export and delete stored conversations.",
    "store": "Copy a store to another database, and bring its tables up to date.",
    "usage": "Say what was spent, and what folding and caching saved.",
    "verify": "Prove that nothing is lost.",
    "view": "See what the model saw, why, and what it cost, in the browser.",
    "worker": "Write summaries for the gateways on a store.",
    "wrap": "Run an agent behind a gateway of its own; says what it used and saved.",
}
FILES = {"import": "imports"}  # commands whose names cannot be those of a Python file


class LazyCommands(click.Group):
    """A group whose commands live in `leporello.cli.<name>` and are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands."""
        return sorted(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; for a misspelt one, say which may be meant."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import one command."""
        if name not in COMMANDS:
            return None
        command = import_module(f"leporello.cli.{FILES.get(name, name.replace('-', '_'))}").command
        assert isinstance(command, click.Command)  # noqa: S101 - a broken installation, not a user's mistake
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, importing none of them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(leporello.__version__, prog_name="leporello")
def commands() -> None:
    """Leporello, the context layer for LLM agents.

    Folds a conversation so that it always fits the model's window, and unfolds every word again.

    To begin without a key: leporello demo, leporello chat --local, leporello serve --demo, leporello view --demo
    """


def main() -> None:
    """Run the command line; a user's mistake is one line, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a locale without "→" gets "?"
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _showing(warnings.showwarning)
            commands(prog_name="leporello")
    except LeporelloError as error:
        click.echo(_wrapped(f"leporello: {error}"), err=True)
        sys.exit(2)


def _showing(usual: Callable[..., None]) -> Callable[..., None]:
    """Return what shows a warning: ours in one line, without a place in our sources, and others as usual."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, LeporelloWarning):
            click.echo(_wrapped(f"leporello: {message}"), err=True)
        else:
            usual(message, category, *where, **more)

    return show


def _wrapped(text: str) -> str:
    """Break lines between words where they are read on a terminal; elsewhere a program may read them."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = (
        textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""] for line in text.splitlines()
    )
    return "\n".join(part for wrapped in lines for part in wrapped)
