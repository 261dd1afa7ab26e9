"""Looks for an engine: the user's folder of its name, a plugin that registers it, a shipped folder, a package."""

from __future__ import annotations

import difflib
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from leporello.config.engines import BUILT_IN, ENGINE_ENTRY_POINTS, LOSSLESS
from leporello.errors import ConfigError, PluginError
from leporello.plugins.discover import INSTALLED, NOT_OWN, Found, discover, engines_by_name, places
from leporello.plugins.enabled import Registration, ignored_plugin
from leporello.plugins.load import engine_class, import_plugin, register_function, run_register
from leporello.plugins.offer import Offer

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.config import Config
    from leporello.plugins.enabled import EnabledPlugins
    from leporello.plugins.engine_factory import EngineFactory

T = TypeVar("T")


class Search:
    """One search: what it found, what failed, and what the plugins said on the way."""

    def __init__(self, name: str, config: Config, factory: EngineFactory, enabled: EnabledPlugins) -> None:
        self.failures: list[PluginError] = []
        self.notes: list[str] = []
        self.own: Registration | None = None
        """What the engine's folder registered."""
        self._name = name
        self._config = config
        self._factory = factory
        self._enabled = enabled
        self._named = [one for one in engines_by_name(config) if one.name == name]
        self._registered: list[Offer] = []

    def find(self) -> Offer | None:
        """Return the first that can be used; a shipped engine never takes the place of a user's own that fails."""
        own = next((one for one in self._named if one.origin not in NOT_OWN), None)
        other = next((one for one in self._named if one.origin in NOT_OWN), None)
        offer = self._load(own) or self._plugin() or (None if own else self._shipped(other))
        if offer is not None:
            self._note_shadowed(offer)
        return offer

    def _shipped(self, found: Found | None) -> Offer | None:
        """Load a shipped engine or a package's; `lcm`'s block must fit, unless a plugin that failed may be meant."""
        if found is not None and found.name == LOSSLESS:
            try:
                self._config.own_lcm()
            except ConfigError as error:
                if not self._enabled.failures:
                    raise
                self.failures.append(PluginError(str(error), plugin=found.name, file=found.path))
                return None
        return self._load(found)

    def _load(self, found: Found | None) -> Offer | None:
        """Load an engine that is found by its name; its own name may differ, which is worth a note."""
        offer = self._attempt(partial(self._offered_by, found)) if found else None
        called = self._attempt(partial(Offer.engine_name, offer)) if offer else None
        if found is None or offer is None or called is None:
            return None
        if found.note:
            self.notes.append(f"plugin '{found.name}' ({found.place}): {found.note}")
        if called != self._name:
            whose = "entry point's" if found.origin == INSTALLED else "folder's"
            self.notes.append(
                f"plugin '{found.name}' ({found.place}): its engine calls itself '{called}'; the {whose} name counts"
            )
        return offer

    def _plugin(self) -> Offer | None:
        """Let the enabled plugins register, in the order of `plugins.enabled`, and take the engine of that name."""
        for offer in self._enabled.offers(self._factory, self._name):
            if offer.known_name() == BUILT_IN:
                self.notes.append(ignored_plugin(offer.found))
            else:
                self._registered.append(offer)
        chosen = self._choose(self._registered)
        kept = chosen or next(iter(self._registered), None)
        for offer in self._registered:
            if kept is not None and offer is not kept:
                self.notes.append(
                    f"plugin '{offer.found.name}' registers another engine, '{offer.label()}'; only one can be "
                    f"registered: '{kept.label()}' of plugin '{kept.found.name}' is kept"
                )
        return chosen

    def _note_shadowed(self, offer: Offer) -> None:
        """Say which engine this is when there are others of its name."""
        shadowed = [one.place for one in self._named if one is not offer.found]
        if shadowed:
            whose = f" of plugin '{offer.found.name}'" if offer.found.kind == "plugin" else ""
            self.notes.append(
                f"engine '{self._name}' is the one{whose} in {offer.found.place}; it takes precedence over "
                f"{', '.join(shadowed)}"
            )

    def report(self) -> str:
        """Say what was looked for, where, and why it failed."""
        searched = (place for place in places(self._config) if place.kind == "engine")
        where = ", ".join(f"{place.path}{f' ({place.problem})' if place.problem else ''}" for place in searched)
        enabled = ", ".join(self._config.plugins.enabled) or "none is enabled"
        failures = [*self.failures, *self._enabled.failures]
        reasons = [*map(str, failures), *self._others()] or ["there is no engine of that name"]
        found = discover(self._config)
        idle = [one.name for one in found if one.kind == "plugin" and not one.enabled and not one.problem]
        names = [one.name for one in found if one.kind != "plugin"] + [one.label() for one in self._registered]
        near = [] if failures else difflib.get_close_matches(self._name, names, n=1)
        return "\n".join(
            [
                f"  looked for a folder '{self._name}' in {where}",
                f"  for an entry point '{self._name}' of the group {ENGINE_ENTRY_POINTS}",
                f"  and for a plugin that registers it: {enabled}",
                *(f"  why: {reason}" for reason in reasons),
                *(f"  note: {note}" for note in (*self._enabled.notes(), *self.notes)),
                *(f"  installed, but not named in plugins.enabled: {name}" for name in idle),
                *(f"  did you mean '{name}'?" for name in near),
                "  `leporello plugins list` shows what there is, `leporello doctor` what is wrong",
            ]
        )

    def _offered_by(self, found: Found) -> Offer:
        module = import_plugin(found)
        register = register_function(module, found)
        if register:
            self.own = Registration(found, register, run_register(register, found))
            self.notes += self.own.context.notes
            offers = list(self.own.offers(self._factory, self._name))
            if offers:
                return (self._choose(offers) if len(offers) > 1 else None) or offers[0]
        thing, note = engine_class(module, found)
        if note:
            self.notes.append(note)
        return Offer(thing, name=self._name, found=found, factory=self._factory)

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

    def _attempt(self, step: Callable[[], T]) -> T | None:
        """Do a step that runs a plugin's code; a failure is kept, and the search goes on."""
        try:
            return step()
        except PluginError as error:
            self.failures.append(error)
            return None
