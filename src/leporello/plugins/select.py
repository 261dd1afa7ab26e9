"""Chooses the engine that `context.engine` names, and gives each conversation one of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal

from leporello.config import Config
from leporello.config.engines import BUILT_IN, LOSSLESS
from leporello.engine import strict_keywords
from leporello.errors import EngineFallbackWarning, PluginError, PluginWarning, UnknownWindowWarning, warn_caller
from leporello.plugins.discover import discover
from leporello.plugins.enabled import EnabledPlugins, ignored_plugin
from leporello.plugins.engine_factory import EngineFactory, assumed_window, takes
from leporello.plugins.hermes.host import serve
from leporello.plugins.search import Search

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from leporello.engine import ContextEngine
    from leporello.llm import LLM
    from leporello.plugins.context import Command
    from leporello.plugins.enabled import Registration
    from leporello.plugins.offer import Offer
    from leporello.store import Store


@strict_keywords
def load_engine(
    config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    model: str | None = None,
    provider: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    api_mode: str | None = None,
    context_length: int | None = None,
    llm: LLM | Literal["auto"] | None = "auto",
    store: Store | str | os.PathLike[str] | None = None,
    clock: Callable[[], float] | None = None,
) -> ContextEngine:
    """Return a fresh engine, ready to use: the one that `name` or else `context.engine` in the configuration names.

    `config` is a path, a mapping, a Config, or None for `$LEPORELLO_HOME/config.yaml`; what is left out comes from it
    and from the keys in the environment. `llm` is the summariser: "auto" as configured, None for summaries without a
    model. `llm`, `store` and `clock` are given to an engine whose constructor takes them. An engine that cannot be used
    is replaced by the built-in compressor, with an EngineFallbackWarning that says why. Where the model's window is not
    known, 128,000 tokens are assumed, with an UnknownWindowWarning.
    """
    return EngineSource(
        config,
        name=name,
        model=model,
        provider=provider,
        base_url=base_url,
        api_key=api_key,
        api_mode=api_mode,
        context_length=context_length,
        llm=llm,
        store=store,
        clock=clock,
    ).new_engine()


class EngineSource:
    """Where conversations get their engines; each gets one of its own. The plugin is looked for and loaded once.

    Takes what `load_engine` takes, and `enabled`, so that several sources run the enabled plugins once.
    """

    @strict_keywords
    def __init__(
        self,
        config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        api_mode: str | None = None,
        context_length: int | None = None,
        llm: LLM | Literal["auto"] | None = "auto",
        store: Store | str | os.PathLike[str] | None = None,
        clock: Callable[[], float] | None = None,
        enabled: EnabledPlugins | None = None,
    ) -> None:
        self.config: Config = Config.coerce(config)
        self.name: str = name or self.config.context.engine or BUILT_IN
        self._factory = EngineFactory.of(
            self.config,
            model=model,
            provider=provider,
            base_url=base_url,
            api_key=api_key,
            api_mode=api_mode,
            context_length=context_length,
            **({} if llm == "auto" else {"llm": llm}),
            **({} if store is None else {"store": store}),
            **({} if clock is None else {"clock": clock}),
        )
        self._enabled = enabled or EnabledPlugins(self.config)
        self._lock = threading.RLock()
        self._offer: Offer | None = None
        self._own: Registration | None = None
        self._looked = False
        self._told_window = False

    @property
    def commands(self) -> dict[str, Command]:
        """The slash commands that plugins registered on the way to the engine."""
        own = self._own.context.commands if self._own else {}
        return {**(self._enabled.commands if self._enabled.ran else {}), **own}

    @property
    def shipped(self) -> bool:
        """Whether the chosen engine is one that Leporello ships; False when it cannot be loaded."""
        if self.name == BUILT_IN:
            return False
        try:
            return self._chosen().found.origin == "shipped"
        except PluginError:
            return False

    def is_unkept(self, session_id: str) -> bool:
        """Tell whether a conversation is one of `lcm.ignore_sessions`, which our engine of that name does not keep."""
        return self.name == LOSSLESS and self.config.own_lcm().ignores(session_id) and self.shipped

    def new_engine(self) -> ContextEngine:
        """Return an engine for one more conversation; the compressor, with a warning, if the chosen one fails."""
        try:
            engine = self._engine()
        except PluginError as error:
            failed = f"context engine '{self.name}' cannot be used; the built-in compressor takes its place."
            warn_caller(f"{failed}\n{error.problem}", EngineFallbackWarning)
            engine = self._factory.compressor()
        if self.assumes_window(engine) and not self._told_window:
            self._told_window = True
            warn_caller(assumed_window(self._factory.model), UnknownWindowWarning)
        return engine

    def assumes_window(self, engine: ContextEngine) -> bool:
        """Tell whether an engine from here goes by an assumed window, because the model's is not known."""
        return self._factory.is_assumed and getattr(engine, "context_length", 0) == self._factory.context_length

    def make(self) -> ContextEngine:
        """Return an engine for one more conversation; a PluginError says why the chosen one cannot be had."""
        try:
            return self._engine()
        except PluginError as error:
            raise self._told(error) from error

    def built_in(self) -> ContextEngine:
        """Return the built-in engine for the same model: it folds where the chosen one fails."""
        return self._factory.compressor()

    def _engine(self) -> ContextEngine:
        if self.name == BUILT_IN:
            self._look_for_namesakes()
            return self._factory.compressor()
        with self._lock:
            offer = self._chosen()
            try:
                return offer.fresh()
            except PluginError as error:
                raise PluginError(f"  why: {error}", plugin=self.name) from error

    def _chosen(self) -> Offer:
        """Return what the chosen engine is made of; it is looked for once."""
        with self._lock:
            serve(self.config, **self._factory.given_llm())
            if self._offer is None:
                self._offer = self._find()
            return self._offer

    def takes(self, option: str) -> bool:
        """Tell whether the chosen engine's constructor names an option; an engine that a plugin made takes none."""
        if self.name == BUILT_IN:
            return takes(type(self._factory.compressor()), option)
        try:
            thing = self._chosen().thing
        except PluginError as error:
            raise self._told(error) from error
        return callable(thing) and takes(thing, option)

    def _look_for_namesakes(self) -> None:
        """Say, once, when a plugin has the name of the built-in engine and is ignored."""
        with self._lock:
            if self._looked:
                return
            self._looked = True
        for one in discover(self.config):
            if one.problem and one.name == BUILT_IN:
                warn_caller(ignored_plugin(one), PluginWarning)

    def _told(self, error: PluginError) -> PluginError:
        return PluginError(f"it cannot be used as an engine.\n{error.problem}", plugin=self.name)

    def _find(self) -> Offer:
        search = Search(self.name, self.config, self._factory, self._enabled)
        offer = search.find()
        if offer is None:
            raise PluginError(search.report(), plugin=self.name)
        self._own = search.own
        for note in (*map(str, search.failures), *self._enabled.news(), *search.notes):
            warn_caller(note, PluginWarning)
        return offer
