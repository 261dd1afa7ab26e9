"""config.yaml: typed, with one source of defaults, and edited without losing a comment."""

from leporello.config.model import Config

__all__ = ["Config"]
