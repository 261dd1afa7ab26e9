"""The general plugins that `plugins.enabled` names: each is run once, and what it registers is kept here."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from leporello.config.engines import BUILT_IN
from leporello.errors import PluginError
from leporello.plugins.discover import Found, discover
from leporello.plugins.engine_factory import EngineFactory
from leporello.plugins.hooks import Hooks
from leporello.plugins.load import import_plugin, register_function, run_register
from leporello.plugins.offer import Offer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.config import Config
    from leporello.plugins.context import Command, Offered, PluginContext, PluginTool
    from leporello.plugins.load import Register


@dataclass
class Registration:
    """A plugin that was run, and what it registered."""

    found: Found
    register: Register
    context: PluginContext

    def offers(self, factory: EngineFactory, name: str) -> Iterator[Offer]:
        """Yield the engines that it registered, to be had under the configured `name`."""
        for index, thing in enumerate(self.context.engines):
            yield Offer(thing, name=name, found=self.found, factory=factory, again=partial(self.again, index))

    def again(self, index: int) -> Offered | None:
        """Run the plugin again; return the engine that it registers in the same place, its commands replace the old."""
        self.context = run_register(self.register, self.found)
        engines = self.context.engines
        return engines[index] if index < len(engines) else None


class EnabledPlugins:
    """The enabled plugins of a configuration; nothing of them is run before something of them is needed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.RLock()
        self.ran: bool = False
        """Whether something of them was needed."""
        self._registrations: list[Registration] = []
        self._failures: list[PluginError] = []
        self._told = False

    @property
    def registrations(self) -> list[Registration]:
        """What the plugins registered, in the order of `plugins.enabled`."""
        self._run()
        return self._registrations

    @property
    def failures(self) -> list[PluginError]:
        """Why some of them could not be run."""
        self._run()
        return self._failures

    @property
    def commands(self) -> dict[str, Command]:
        """Their slash commands; the first of a name stays."""
        commands: dict[str, Command] = {}
        for one in self.registrations:
            commands = {**one.context.commands, **commands}
        return commands

    @property
    def tools(self) -> list[PluginTool]:
        """Their tools; the first of a name stays."""
        tools: dict[str, PluginTool] = {}
        for one in self.registrations:
            tools = {**one.context.tools, **tools}
        return list(tools.values())

    @property
    def hooks(self) -> Hooks:
        """Their hooks, in the order of `plugins.enabled`."""
        return Hooks(hook for one in self.registrations for hook in one.context.hooks)

    def notes(self) -> list[str]:
        """Return what is odd about what they registered."""
        return [note for one in self.registrations for note in one.context.notes]

    def news(self) -> list[str]:
        """Return what failed and what is odd, once; nothing while no plugin was run."""
        if self._told or not self.ran:
            return []
        self._told = True
        return [*map(str, self.failures), *self.notes()]

    def offers(self, factory: EngineFactory, name: str) -> Iterator[Offer]:
        """Yield the engines that they registered, to be had under the configured `name`."""
        for one in self.registrations:
            yield from one.offers(factory, name)

    def _run(self) -> None:
        with self._lock:
            if self.ran or not self._config.plugins.enabled:
                return
            self.ran = True
            installed = {one.name: one for one in discover(self._config) if one.kind == "plugin"}
            for name in self._config.plugins.enabled:
                try:
                    self._registrations.append(_registered(name, installed.get(name)))
                except PluginError as error:
                    self._failures.append(error)


def survey(config: Config, enabled: EnabledPlugins | None = None) -> list[Found]:
    """List every engine and plugin, with the engines of enabled plugins, which are run for that."""
    if not config.plugins.enabled:
        return discover(config)
    plugins = enabled or EnabledPlugins(config)
    engines: list[Found] = []
    failed = {error.plugin: error.problem for error in plugins.failures}
    for offer in plugins.offers(EngineFactory.of(config), ""):
        try:
            name = _name_of(offer)
        except PluginError as error:
            failed[error.plugin] = error.problem
        else:
            origin = f"plugin {offer.found.name}"
            problem = "" if name != BUILT_IN else ignored_plugin(offer.found)
            engines.append(replace(offer.found, name=name, kind="engine", origin=origin, called="", problem=problem))
    return [
        replace(one, problem=failed[one.name]) if one.kind == "plugin" and one.name in failed else one
        for one in discover(config, engines)
    ]


def ignored_plugin(found: Found) -> str:
    """Say that a plugin wants the built-in engine's name in vain."""
    return f"plugin '{found.name}' ({found.place}) is ignored: the built-in engine alone can be called '{BUILT_IN}'"


def _name_of(offer: Offer) -> str:
    """Return an engine's name; one is made for that only where it cannot be known otherwise."""
    name = offer.engine_name()
    offer.discard()
    return name


def _registered(name: str, found: Found | None) -> Registration:
    if found is None:
        raise PluginError("plugins.enabled names it, but it is not installed.", plugin=name)
    register = register_function(import_plugin(found), found)
    if register is None:
        raise PluginError("defines no register(ctx).", plugin=name, file=found.path)
    return Registration(found, register, run_register(register, found))
