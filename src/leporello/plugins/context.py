"""The `ctx` that a plugin's `register(ctx)` is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from leporello.engine import ContextEngine
from leporello.errors import PluginError

Offered: TypeAlias = ContextEngine | Callable[..., ContextEngine]  # an engine, its class, or a factory

# What other hosts do with these; here they are accepted, so that the engine beside them can be used.
_NO_EFFECT = {
    "register_tool": "the model is not offered the tool; an engine offers tools through get_tool_schemas()",
    "register_hook": "the hook is never called",
    "register_skill": "the skill is not offered",
    "register_cli_command": "the command line does not get the command",
    "register_memory_provider": "the memory provider is not used",
    "register_platform": "the platform is not connected",
}


@dataclass(frozen=True, kw_only=True)
class Command:
    """A slash command: `handler(arguments)` returns what the user is shown."""

    name: str
    handler: Callable[[str], Any]
    description: str
    plugin: str


class PluginContext:
    """Takes what a plugin registers; nothing of it is used before it is chosen."""

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.engines: list[Offered] = []
        self.commands: dict[str, Command] = {}
        self.notes: list[str] = []

    def register_context_engine(self, engine: Offered) -> None:
        """Offer an engine, its class, or a function that makes one; `context.engine` decides whether it is used."""
        if not isinstance(engine, ContextEngine) and not callable(engine):
            raise PluginError(
                f"registers {_described(engine)} as its engine; an engine is a ContextEngine, its class, "
                "or a function that returns one.",
                plugin=self.plugin,
            )
        if inspect.isclass(engine) and not issubclass(engine, ContextEngine):
            raise PluginError(
                f"registers the class {engine.__name__} as its engine, which is not a ContextEngine.",
                plugin=self.plugin,
            )
        self.engines.append(engine)

    def register_command(self, name: str, handler: Callable[[str], Any], description: str = "", **_unused: Any) -> None:
        """Add a slash command; the first of a name stays."""
        name = str(name).lstrip("/")
        if not callable(handler):
            self.notes.append(
                f"plugin '{self.plugin}' registers /{name} with a handler that cannot be called: it is left out"
            )
        elif name in self.commands:
            self.notes.append(f"plugin '{self.plugin}' registers /{name} twice: the first one stays")
        else:
            self.commands[name] = Command(name=name, handler=handler, description=description, plugin=self.plugin)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("register_"):
            raise AttributeError(
                f"this host's plugin context has no {name!r}; it has register_context_engine and register_command"
            )

        def accept(*_args: Any, **_kwargs: Any) -> None:
            effect = _NO_EFFECT.get(name, "it has no effect")
            note = f"plugin '{self.plugin}' calls {name}(), which does nothing here: {effect}"
            if note not in self.notes:
                self.notes.append(note)

        return accept


def _described(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
