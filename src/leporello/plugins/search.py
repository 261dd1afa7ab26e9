"""Looks for an engine: a folder of its name, else a plugin that registers it."""

from __future__ import annotations

import difflib
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from leporello.errors import PluginError
from leporello.plugins.discover import BUILT_IN, Found, discover, places
from leporello.plugins.load import engine_class, import_plugin, register_function, run_register
from leporello.plugins.offer import Offer

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.config import Config
    from leporello.plugins.context import Command, Offered
    from leporello.plugins.load import Register
    from leporello.plugins.make import Making

T = TypeVar("T")


class Search:
    """One search: what it found, what failed, and what the plugins said on the way."""

    def __init__(self, name: str, config: Config, making: Making) -> None:
        self.failures: list[PluginError] = []
        self.notes: list[str] = []
        self.commands: dict[str, Command] = {}
        self._name = name
        self._config = config
        self._making = making
        self._found = discover(config)
        self._registered: list[Offer] = []

    def folder(self) -> Offer | None:
        """Load the engine folder of that name; its own name may differ, which is worth a note."""
        found = self._named(self._name, "engine")
        if found is None:
            return None
        offer = self._attempt(partial(self._load_folder, found))
        called = self._attempt(partial(Offer.engine_name, offer)) if offer else None
        if offer is None or called is None:
            return None
        if found.note:
            self.notes.append(f"plugin '{found.name}' ({found.path}): {found.note}")
        if called != self._name:
            self.notes.append(
                f"plugin '{found.name}' ({found.path}): its engine calls itself '{called}'; the folder's name counts"
            )
        return offer

    def registered(self) -> Offer | None:
        """Let the enabled plugins register, in the order of `plugins.enabled`, and take the engine of that name."""
        for name in self._config.plugins.enabled:
            self._attempt(partial(self._register_enabled, name))
        chosen = self._choose(self._registered)
        kept = chosen or next(iter(self._registered), None)
        for offer in self._registered:
            if kept is not None and offer is not kept:
                self.notes.append(
                    f"plugin '{offer.found.name}' registers another engine, '{offer.label()}'; only one can be "
                    f"registered: '{kept.label()}' of plugin '{kept.found.name}' is kept"
                )
        return chosen

    def report(self) -> str:
        """Say what was looked for, where, and why it failed."""
        searched = (place for place in places(self._config) if place.kind == "engine")
        where = ", ".join(f"{place.path}{f' ({place.problem})' if place.problem else ''}" for place in searched)
        enabled = ", ".join(self._config.plugins.enabled) or "none is enabled"
        reasons = [*map(str, self.failures), *self._others()] or ["there is no engine of that name"]
        idle = [one.name for one in self._found if one.kind == "plugin" and not one.enabled and not one.problem]
        names = [one.name for one in self._found if one.kind != "plugin"] + [one.label() for one in self._registered]
        near = [] if self.failures else difflib.get_close_matches(self._name, names, n=1)
        return "\n".join(
            [
                f"  looked for a folder '{self._name}' in {where}",
                f"  and for a plugin that registers it: {enabled}",
                *(f"  why: {reason}" for reason in reasons),
                *(f"  note: {note}" for note in self.notes),
                *(f"  installed, but not named in plugins.enabled: {name}" for name in idle),
                *(f"  did you mean '{name}'?" for name in near),
                "  `leporello plugins list` shows what there is, `leporello doctor` what is wrong",
            ]
        )

    def _load_folder(self, found: Found) -> Offer:
        module = import_plugin(found)
        register = register_function(module, found)
        offers = self._run(register, found) if register else []
        if offers:
            return (self._choose(offers) if len(offers) > 1 else None) or offers[0]
        thing, note = engine_class(module, found)
        if note:
            self.notes.append(note)
        return Offer(thing, name=self._name, found=found, making=self._making)

    def _register_enabled(self, name: str) -> None:
        found = self._named(name, "plugin")
        if found is None:
            raise PluginError("plugins.enabled names it, but it is not installed.", plugin=name)
        register = register_function(import_plugin(found), found)
        if register is None:
            raise PluginError("defines no register(ctx).", plugin=name, file=found.path)
        for offer in self._run(register, found):
            if offer.known_name() == BUILT_IN:
                self.notes.append(ignored_plugin(found))
            else:
                self._registered.append(offer)

    def _run(self, register: Register, found: Found) -> list[Offer]:
        """Run register(ctx) and take over what it registers."""
        context = run_register(register, found)
        self.notes += context.notes
        for command in context.commands.values():
            self.commands.setdefault(command.name, command)
        return [
            Offer(
                thing, name=self._name, found=found, making=self._making, again=partial(_again, register, found, index)
            )
            for index, thing in enumerate(context.engines)
        ]

    def _choose(self, offers: list[Offer]) -> Offer | None:
        """Return the offer of the name; an engine is made for that only where its name cannot be known otherwise."""
        for offer in offers:
            if offer.known_name() == self._name:
                return offer
        for offer in offers:
            if offer.known_name() is None:
                if self._attempt(offer.engine_name) == self._name:
                    return offer
                self._attempt(offer.discard)
        return None

    def _others(self) -> list[str]:
        return [
            f"plugin '{one.found.name}' registers '{one.label()}', not '{self._name}'"
            for one in self._registered
            if one.known_name() not in (None, self._name)
        ]

    def _named(self, name: str, kind: str) -> Found | None:
        return next((one for one in self._found if one.kind == kind and one.name == name), None)

    def _attempt(self, step: Callable[[], T]) -> T | None:
        """Do a step that runs a plugin's code; a failure is kept, and the search goes on."""
        try:
            return step()
        except PluginError as error:
            self.failures.append(error)
            return None


def ignored_plugin(found: Found) -> str:
    """Say that a plugin wants the built-in engine's name in vain."""
    place = found.path or f"entry point {found.target}"
    return f"plugin '{found.name}' ({place}) is ignored: the built-in engine alone can be called '{BUILT_IN}'"


def _again(register: Register, found: Found, index: int) -> Offered | None:
    engines = run_register(register, found).engines
    return engines[index] if index < len(engines) else None
