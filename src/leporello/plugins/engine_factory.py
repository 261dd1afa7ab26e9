"""Makes engines: what they are given, and how they learn of the model."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leporello.config.keys import api_key as key_of
from leporello.engine import ContextEngine, call_fitting, fitting
from leporello.errors import PluginError
from leporello.plugins.load import blame
from leporello.tokens.windows import DEFAULT_WINDOW, window_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leporello.config import Config
    from leporello.llm import LLM
    from leporello.plugins.discover import Found


@dataclass(frozen=True, kw_only=True)
class EngineFactory:
    """Makes engines from what is known about the model; each gets of that what its signature takes."""

    config: Config
    model: str
    provider: str
    base_url: str
    api_key: str = field(repr=False)
    api_mode: str
    context_length: int
    """The model's window; an assumed one where it is not known."""
    is_assumed: bool = False
    extra: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        config: Config,
        *,
        model: str | None = None,
        provider: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        api_mode: str | None = None,
        context_length: int | None = None,
        **extra: Any,
    ) -> EngineFactory:
        """Fill in from the configuration and the keys what the caller left open; `extra` is `llm`, `store`, `clock`."""
        named = model or config.model.default or ""
        who = provider or config.model.provider
        who = "" if who == "auto" else who
        window = context_length or known_window(config, named, who)
        return cls(
            config=config,
            model=named,
            provider=who,
            base_url=base_url or config.model.base_url or "",
            api_key=api_key or key_of(who) or "",
            api_mode=api_mode or "",
            context_length=window or DEFAULT_WINDOW,
            is_assumed=not window,
            extra=extra,
        )

    def compressor(self) -> ContextEngine:
        """Make the built-in engine."""
        from leporello.compressor import ContextCompressor

        options = self.extra if "llm" in self.extra else {**self.extra, "llm": self._connect()}
        engine = ContextCompressor(self.context_length, config=self.config, **fitting(ContextCompressor, **options))
        self._introduce(engine)
        return engine

    def construct(self, factory: Callable[..., Any], name: str, found: Found) -> ContextEngine:
        """Call a plugin's class or factory with its own block of config.yaml and whatever else it takes.

        A shipped engine reads its block from the whole configuration. One whose block names a store is not offered the
        host's.
        """
        block = self.config.engine_block(name)
        settings = self.config if found.origin == "shipped" else block
        offered = {"context_length": self.context_length, "config": settings, **self.extra}
        if block.get("store"):
            offered.pop("store", None)
        if "llm" not in offered and takes(factory, "llm"):
            offered["llm"] = self._connect()
        with blame(found, "constructing its engine", made=factory):
            engine: Any = call_fitting(factory, **offered)
            return checked(engine, factory, found)

    def introduce(self, engine: ContextEngine, found: Found) -> None:
        """Tell a plugin's engine the model."""
        with blame(found, "its update_model()", made=type(engine)):
            self._introduce(engine)

    def given_llm(self) -> dict[str, LLM | None]:
        """Return the model that the caller gave, as a keyword argument; {} when the caller gave none."""
        return {key: self.extra[key] for key in ("llm",) if key in self.extra}

    def _introduce(self, engine: ContextEngine) -> None:
        # An engine on another host's base class may lack the method, and then keeps what its constructor was given.
        update = getattr(engine, "update_model", None)
        if update is None:
            return
        call_fitting(
            update,
            model=self.model,
            context_length=self._window_for(engine),
            base_url=self.base_url,
            api_key=self.api_key,
            provider=self.provider,
            api_mode=self.api_mode,
        )

    def _window_for(self, engine: ContextEngine) -> int:
        """Return the window to tell an engine; an assumed one does not replace what a plugin gave its engine."""
        own: int = getattr(engine, "context_length", 0)
        return own or self.context_length if self.is_assumed else self.context_length

    def _connect(self) -> LLM | None:
        from leporello.llm.connect import connect

        return connect(self.config, main=self.config.model.routed(self.model, self.provider, self.base_url))


def known_window(config: Config, model: str, provider: str) -> int:
    """Return a model's window: the configured one of the configured model, else the known one, else 0."""
    if configured := config.model.window_of(model):
        return configured
    return (window_of(model, provider, overrides=config.windows) if model else None) or 0


def assumed_window(model: str) -> str:
    """Say that a model's window is not known, what is assumed, and where to set it."""
    name = f"of {model!r}" if model else "of the model"
    hint = f"set model.context_length in config.yaml, or windows: {{{model or 'MODEL'}: TOKENS}}"
    return f"the window {name} is not known: {DEFAULT_WINDOW:,} tokens are assumed; {hint}"


def checked(engine: Any, maker: Any, found: Found) -> ContextEngine:
    """Return an engine, or say that it is none."""
    if isinstance(engine, ContextEngine):
        return engine
    name = getattr(maker, "__name__", type(maker).__name__)
    raise PluginError(
        f"{name}() returns a value of type {type(engine).__name__}, not a ContextEngine.", plugin=found.name
    )


def takes(factory: Any, name: str) -> bool:
    """Tell whether a signature names a parameter; catching everything is not asking for it."""
    try:
        return name in inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
