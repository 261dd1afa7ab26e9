"""Chooses the engine that `context.engine` names, and gives each conversation one of its own."""

from __future__ import annotations

import inspect
import threading
import warnings
from typing import TYPE_CHECKING, Any

from leporello.config import Config
from leporello.errors import EngineFallbackWarning, LeporelloWarning, PluginError, PluginWarning
from leporello.plugins.discover import BUILT_IN, discover
from leporello.plugins.hermes.host import serve
from leporello.plugins.make import Making, takes
from leporello.plugins.search import Search, ignored_plugin

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from leporello.engine import ContextEngine
    from leporello.plugins.context import Command
    from leporello.plugins.offer import Offer


def load_engine(
    config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    **options: Any,
) -> ContextEngine:
    """Return a fresh engine, ready to use: the one that `name` or else `context.engine` in the configuration names.

    `config` is a path, a mapping, a Config, or None for `$LEPORELLO_HOME/config.yaml`. `options` are `context_length`,
    `llm`, `model`, `provider`, `base_url`, `api_key`, `api_mode`, and whatever the engine's constructor takes; what is
    left out comes from the configuration and from the keys in the environment. An engine that cannot be used is
    replaced by the built-in compressor, with an EngineFallbackWarning that says why.
    """
    return EngineSource(config, name=name, **options).new_engine()


class EngineSource:
    """Where conversations get their engines; each gets one of its own. The plugin is looked for and loaded once.

    `commands` holds the slash commands that plugins registered on the way, when the first engine was made.
    """

    def __init__(
        self,
        config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> None:
        self.config = Config.coerce(config)
        self.name = name or self.config.context.engine or BUILT_IN
        self.commands: dict[str, Command] = {}
        self._making = Making.of(self.config, options)
        self._lock = threading.RLock()
        self._offer: Offer | None = None
        self._looked = False

    def new_engine(self) -> ContextEngine:
        """Return an engine for one more conversation; the compressor, with a warning, if the chosen one fails."""
        try:
            return self._engine()
        except PluginError as error:
            failed = f"context engine '{self.name}' cannot be used; the built-in compressor takes its place."
            _warn(f"{failed}\n{error.problem}", EngineFallbackWarning)
            return self._making.compressor()

    def make(self) -> ContextEngine:
        """Return an engine for one more conversation; a PluginError says why the chosen one cannot be had."""
        try:
            return self._engine()
        except PluginError as error:
            raise self._told(error) from error

    def built_in(self) -> ContextEngine:
        """Return the built-in engine for the same model, whatever engine is chosen: it folds where that one fails."""
        return self._making.compressor()

    def _engine(self) -> ContextEngine:
        if self.name == BUILT_IN:
            self._look_for_namesakes()
            return self._making.compressor()
        with self._lock:
            serve(self.config, **self._making.given_llm())
            if self._offer is None:
                self._offer = self._find()
            try:
                return self._offer.fresh()
            except PluginError as error:
                raise PluginError(f"  why: {error}", plugin=self.name) from error

    def takes(self, option: str) -> bool:
        """Tell whether the chosen engine's constructor names an option; an engine that a plugin made takes none."""
        if self.name == BUILT_IN:
            return takes(type(self._making.compressor()), option)
        with self._lock:
            try:
                self._offer = self._offer or self._find()
            except PluginError as error:
                raise self._told(error) from error
            return callable(self._offer.thing) and takes(self._offer.thing, option)

    def _look_for_namesakes(self) -> None:
        """Say, once, when a plugin has the name of the built-in engine and is ignored."""
        with self._lock:
            if self._looked:
                return
            self._looked = True
        for one in discover(self.config):
            if one.problem and one.name == BUILT_IN:
                _warn(ignored_plugin(one), PluginWarning)

    def _told(self, error: PluginError) -> PluginError:
        return PluginError(f"it cannot be used as an engine.\n{error.problem}", plugin=self.name)

    def _find(self) -> Offer:
        search = Search(self.name, self.config, self._making)
        offer = search.folder() or search.registered()
        self.commands = search.commands
        if offer is None:
            raise PluginError(search.report(), plugin=self.name)
        for note in (*map(str, search.failures), *search.notes, *self._untaken(offer)):
            _warn(note, PluginWarning)
        return offer

    def _untaken(self, offer: Offer) -> list[str]:
        untaken = self._making.untaken(offer.thing) if callable(offer.thing) else []
        return [f"engine '{self.name}' does not take {', '.join(untaken)}: ignored"] if untaken else []


def _warn(text: str, category: type[LeporelloWarning]) -> None:
    """Warn at the line outside of this package that asked for an engine."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("leporello."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
