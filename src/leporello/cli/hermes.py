"""`leporello hermes`: our engines inside Hermes Agent."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leporello.cli.group import CommandGroup

if TYPE_CHECKING:
    from leporello.adapters.hermes.engine import EngineName
    from leporello.adapters.hermes.install import HomeChanges

_home_option = click.option(
    "--home", type=click.Path(path_type=Path), help="The Hermes home; default: $HERMES_HOME, else ~/.hermes."
)
_yes_option = click.option("--yes", is_flag=True, help="Really do it.")


@click.group(name="hermes", cls=CommandGroup)
def command() -> None:
    """Use Leporello's engines inside Hermes Agent.

    Example: leporello hermes install --yes
    """


@command.command()
@click.option(
    "--engine",
    type=click.Choice(["lcm", "compressor"]),
    default="lcm",
    show_default=True,
    help="lcm keeps every message and has tools to find it again; compressor summarises.",
)
@_home_option
@_yes_option
def install(engine: EngineName, home: Path | None, yes: bool) -> None:
    """Let Hermes Agent use an engine of Leporello; without --yes, show what would be written.

    Leporello must be installed in the environment of Hermes Agent, where its plugins are loaded.

    Example: leporello hermes install --engine lcm --yes
    """
    from leporello.adapters.hermes.install import hermes_home, plan_install

    _warn_without_hermes()
    _show_or_do(plan_install(hermes_home(home), engine), yes=yes)
    if yes:
        click.echo("Hermes Agent uses it from its next start. `leporello hermes uninstall` takes it out again.")


@command.command()
@_home_option
@_yes_option
def uninstall(home: Path | None, yes: bool) -> None:
    """Take out what `install` wrote, and nothing else; without --yes, show what would be removed.

    What is stored stays.

    Example: leporello hermes uninstall --yes
    """
    from leporello.adapters.hermes.install import hermes_home, plan_uninstall

    _show_or_do(plan_uninstall(hermes_home(home)), yes=yes)


def _show_or_do(plan: HomeChanges, *, yes: bool) -> None:
    click.echo(f"in {plan.home}:")
    for line in plan.lines:
        click.echo(f"  {line}")
    if yes:
        plan.carry_out()
    else:
        click.echo("nothing was changed, add --yes to do it")


def _warn_without_hermes() -> None:
    try:
        version("hermes-agent")
    except PackageNotFoundError:
        click.echo(
            f"leporello: there is no hermes-agent in this environment ({sys.prefix}). Its plugins are loaded where it "
            "is installed: install Leporello there too, or Hermes Agent goes on with its own compressor.",
            err=True,
        )
