"""Where Leporello keeps its files."""

from __future__ import annotations

import os
from pathlib import Path

from leporello.errors import ConfigError

FILE_NAME = "config.yaml"


def home_folder() -> Path:
    """Return $LEPORELLO_HOME, or ~/.leporello; the folder is not created."""
    named = os.environ.get("LEPORELLO_HOME") or "~/.leporello"
    try:
        return Path(named).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(
            f"the home folder of {named!r} is not known.", key="LEPORELLO_HOME", hint="Set it to an absolute path."
        ) from error


def default_path() -> Path:
    """Return the path of config.yaml in the home folder; the file need not exist."""
    return home_folder() / FILE_NAME
