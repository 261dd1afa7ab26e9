"""The command line: one file per command, loaded when it is called. The only place that prints."""

from leporello.cli.main import main

__all__ = ["main"]
