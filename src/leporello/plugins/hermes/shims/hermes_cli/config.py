"""The configuration and the home folder, under the names that plugins for Hermes Agent import."""

from leporello.plugins.hermes.host import get_hermes_home, load_config

__all__ = ["get_hermes_home", "load_config"]
