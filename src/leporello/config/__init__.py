"""config.yaml: typed, with one source of defaults, and edited without losing a comment."""

from leporello.config.model import Config, PromptCaching

__all__ = ["Config", "PromptCaching"]
