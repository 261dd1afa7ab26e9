"""One engine that a plugin offers, and a fresh one of it for each conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from leporello.engine import ContextEngine
from leporello.errors import PluginError
from leporello.plugins.engine_factory import checked
from leporello.plugins.load import blame

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.plugins.context import Offered
    from leporello.plugins.discover import Found
    from leporello.plugins.engine_factory import EngineFactory

# Every engine that a conversation has, by identity: a plugin may hand out the same one again.
_taken: WeakValueDictionary[int, ContextEngine] = WeakValueDictionary()


class Offer:
    """An engine, its class or a factory, offered for the configured `name`.

    `again` runs the plugin's register(ctx) once more and returns what it offers then in the same place.
    """

    def __init__(
        self,
        thing: Offered,
        *,
        name: str,
        found: Found,
        factory: EngineFactory,
        again: Callable[[], Offered | None] | None = None,
    ) -> None:
        self.thing = thing
        self.found = found
        self._name = name
        self._factory = factory
        self._again = again
        self._sample = thing if isinstance(thing, ContextEngine) else None
        self._engine_name: str | None = None

    def engine_name(self) -> str:
        """Return the engine's own name; makes one if there is none yet."""
        if self._engine_name is None:
            engine = self._first()
            with blame(self.found, "its engine's `name`", made=type(engine)):
                name: Any = engine.name
                if not isinstance(name, str):
                    raise PluginError(f"its engine's `name` is {name!r}, not a text.", plugin=self.found.name)
            self._engine_name = name
        return self._engine_name

    def known_name(self) -> str | None:
        """Return the engine's name if it can be known without making one."""
        if self._engine_name or self._sample is not None:
            return self.engine_name()
        name = getattr(self.thing, "name", None)
        return name if isinstance(name, str) else None

    def label(self) -> str:
        """Return a name for messages, without making an engine for it."""
        return self.known_name() or str(getattr(self.thing, "__name__", type(self.thing).__name__))

    def fresh(self) -> ContextEngine:
        """Return an engine that no conversation has yet, and that knows the model."""
        engine = self._next()
        if id(engine) in _taken:
            raise PluginError(
                "hands out the same engine for every conversation, and another one has it. Let it register the "
                "engine's class or a function that makes one, or override clone_for_agent().",
                plugin=self.found.name,
                file=self.found.path,
            )
        self._factory.introduce(engine, self.found)
        _taken[id(engine)] = engine
        return engine

    def discard(self) -> None:
        """Close an engine that was made only to learn its name; what a plugin registered itself stays as it is."""
        if self._sample is not None and self._sample is not self.thing:
            close = getattr(self._sample, "close", None)
            made, self._sample = type(self._sample), None
            if callable(close):
                with blame(self.found, "closing its engine", made=made):
                    close()

    def _next(self) -> ContextEngine:
        """Clone an engine, else make one, else let register(ctx) run again."""
        first = self._first()
        clone = self._clone(first)
        if clone is not None:
            return clone
        if id(first) not in _taken:
            return first
        if not isinstance(self.thing, ContextEngine):
            return self._construct(self.thing)
        offered = self._again() if self._again else None
        if offered is None:
            return first
        return offered if isinstance(offered, ContextEngine) else self._construct(offered)

    def _first(self) -> ContextEngine:
        if self._sample is None:
            self._sample = self._construct(self.thing)
        return self._sample

    def _clone(self, engine: ContextEngine) -> ContextEngine | None:
        method = getattr(type(engine), "clone_for_agent", None)
        if method is None or method is ContextEngine.clone_for_agent:
            return None
        with blame(self.found, "its clone_for_agent()", made=type(engine)):
            clone: Any = engine.clone_for_agent()
            return None if clone is None else checked(clone, method, self.found)

    def _construct(self, factory: Any) -> ContextEngine:
        return self._factory.construct(factory, self._name, self.found)
