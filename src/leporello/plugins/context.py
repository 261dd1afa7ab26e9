"""The `ctx` that a plugin's `register(ctx)` is given."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from leporello.engine import ContextEngine
from leporello.errors import PluginError
from leporello.plugins.hooks import EVENTS, Hook

Offered: TypeAlias = ContextEngine | Callable[..., ContextEngine]  # an engine, its class, or a factory

# What other hosts do with these; here they are accepted, so that the engine beside them can be used. The first two work
# for a general plugin, and have no effect in the folder of an engine, as in Hermes Agent.
_NO_EFFECT = {
    "register_tool": "the model is not offered the tool; an engine offers tools through get_tool_schemas()",
    "register_hook": "the hook is never called",
    "register_skill": "the skill is not offered",
    "register_cli_command": "the command line does not get the command",
    "register_memory_provider": "the memory provider is not used",
    "register_platform": "the platform is not connected",
}
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, kw_only=True)
class Command:
    """A slash command: `handler(arguments)` returns what the user is shown."""

    name: str
    handler: Callable[[str], Any]
    description: str
    plugin: str


@dataclass(frozen=True, kw_only=True)
class PluginTool:
    """A tool for the model: `handler(arguments)` returns what the model is told."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    handler: Callable[..., Any]
    plugin: str


class PluginContext:
    """Takes what a plugin registers; nothing of it is used before it is chosen.

    `general` tells that it is a general plugin: only these have hooks and tools.
    """

    def __init__(self, plugin: str, *, general: bool = False) -> None:
        self.plugin = plugin
        self._general = general
        self.hooks: list[Hook] = []
        self.tools: dict[str, PluginTool] = {}
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

    def register_hook(self, hook_name: str, callback: Callable[..., Any], **_unused: Any) -> None:
        """Have a function called when something happens; `leporello.plugins.hooks.EVENTS` are the names."""
        if not self._general:
            self._without_effect("register_hook")
        elif not callable(callback):
            self.notes.append(f"plugin '{self.plugin}': its hook {hook_name} cannot be called: it is left out")
        elif hook_name not in EVENTS:
            self.notes.append(
                f"plugin '{self.plugin}' has a hook {hook_name}, which is never called here: "
                f"the events are {', '.join(sorted(EVENTS))}"
            )
        else:
            self.hooks.append(Hook(event=hook_name, function=callback, plugin=self.plugin))

    def register_tool(
        self,
        name: str,
        toolset: str = "",
        schema: Mapping[str, Any] | None = None,
        handler: Callable[..., Any] | None = None,
        **more: Any,
    ) -> None:
        """Offer a tool to the model of the agent; the first of a name stays. The toolset makes no difference."""
        if not self._general:
            self._without_effect("register_tool")
            return
        told = dict((schema or {}).get("function") or schema or {})
        problem = (
            "has a name that providers refuse (they take up to 64 letters, digits, '_' and '-')"
            if not _TOOL_NAME.fullmatch(str(name))
            else "has no schema with parameters"
            if not isinstance(told.get("parameters"), Mapping)
            else "has a handler that is not a plain function"
            if not callable(handler) or more.get("is_async") or inspect.iscoroutinefunction(handler)
            else "is registered twice"
            if name in self.tools
            else ""
        )
        if problem or handler is None:
            self.notes.append(f"plugin '{self.plugin}': its tool {name} {problem}: it is left out")
            return
        described = str(more.get("description") or told.get("description") or "")
        parameters = told["parameters"]
        self.tools[name] = PluginTool(
            name=name, description=described, parameters=parameters, handler=handler, plugin=self.plugin
        )

    def _without_effect(self, name: str) -> None:
        effect = _NO_EFFECT.get(name, "it has no effect")
        note = f"plugin '{self.plugin}' calls {name}(), which does nothing here: {effect}"
        if note not in self.notes:
            self.notes.append(note)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("register_"):
            raise AttributeError(
                f"this host's plugin context has no {name!r}; it has register_context_engine and register_command"
            )

        def accept(*_args: Any, **_kwargs: Any) -> None:
            self._without_effect(name)

        return accept


def _described(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
