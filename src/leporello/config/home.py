"""Where Leporello keeps its files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from leporello.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME = "config.yaml"


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return $LEPORELLO_HOME, or ~/.leporello; the folder is not created."""
    named = environ.get("LEPORELLO_HOME") or "~/.leporello"
    try:
        return Path(named).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(
            f"the home folder of {named!r} is not known.", key="LEPORELLO_HOME", hint="Set it to an absolute path."
        ) from error


def default_path(home: Path | None = None) -> Path:
    """Return the path of config.yaml in the home folder; the file need not exist."""
    return (home or home_folder()) / FILE_NAME
