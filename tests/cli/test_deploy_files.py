"""What is in deploy/ starts commands that there are, with options that they have, and a configuration that is valid."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from ruamel.yaml import YAML

from leporello import Config
from leporello.cli.main import commands

DEPLOY = Path(__file__).parents[2] / "deploy"


def started() -> list[list[str]]:
    """Return the arguments with which the units and the compose file start the program."""
    units = (path.read_text(encoding="utf-8") for path in sorted((DEPLOY / "systemd").iterdir()))
    found = [shlex.split(line)[1:] for unit in units for line in re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)]
    services = YAML(typ="safe").load(DEPLOY / "compose.yaml")["services"]
    return [*found, *(list(each["command"]) for each in services.values() if "command" in each)]


@pytest.mark.parametrize("arguments", started(), ids=" ".join)
def test_what_is_started_is_a_command_with_these_options(arguments: list[str]) -> None:
    name, *rest = arguments
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    command.make_context(name, rest)
    with pytest.raises(click.UsageError):  # the planted defect
        command.make_context(name, [*rest, "--no-such-option"])


def test_there_are_gateways_and_workers() -> None:
    assert {"serve", "worker"} == {name for name, *_ in started()}
    assert len(started()) == 5


def test_the_configuration_is_valid_and_leaves_summaries_to_workers() -> None:
    config = Config.load(DEPLOY / "config.yaml")
    assert config.lcm.background == "workers"
    assert config.context.engine == "lcm"
    assert config.store.url is not None
    assert config.store.url.startswith("postgresql://")
