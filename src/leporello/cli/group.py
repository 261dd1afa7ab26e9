"""A command with commands of its own, whose `--help` says in a whole sentence what each of them does."""

from __future__ import annotations

import re

import click

_CLAUSE = re.compile(r"\s*(.+?)[.:;](?:\s|$)", re.DOTALL)


class CommandGroup(click.Group):
    """A group that does not cut the descriptions of its commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with the first clause of its help."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_clause(one.help or "")) for name, one in found.items() if one])


def first_clause(text: str) -> str:
    """Return the beginning of a text up to its first full stop, colon or semicolon."""
    found = _CLAUSE.match(text)
    return " ".join((found[1] if found else text).split()) + "."
