"""The home folder, under the name that plugins for Hermes Agent import."""

from leporello.plugins.hermes.host import get_hermes_home

__all__ = ["get_hermes_home"]
