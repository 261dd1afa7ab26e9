"""Opens a session: the model and its window, the store, the engine, and the conversation as it was left."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from leporello.caching import choose
from leporello.config import Config
from leporello.config.engines import BUILT_IN
from leporello.engine import ContextEngine
from leporello.errors import SessionError
from leporello.plugins import EngineSource
from leporello.plugins.engine_factory import assumed_window, known_window
from leporello.prices.table import own_price
from leporello.session.arguments import check_engine, check_sink, check_store, check_texts, check_window
from leporello.session.conversation import Conversation
from leporello.session.converters import converter_of
from leporello.session.engine_host import OWN_MODULES, EngineHost, takes_branch
from leporello.session.resumption import refire_at, resume_meter
from leporello.session.route import Route
from leporello.session.saved_branch import load
from leporello.session.telemetry import with_spans
from leporello.store import Branch, open_store
from leporello.tokens import DEFAULT_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leporello.caching import CachePolicy
    from leporello.events import Sink
    from leporello.llm import LLM
    from leporello.messages import Dialect
    from leporello.store import Store


@dataclass(kw_only=True)
class OpenedSession:
    """An opened conversation with its configuration, and whether its engine and store are closed with it."""

    config: Config
    conversation: Conversation
    system: str | None = None
    notices: list[str] = field(default_factory=list)
    introduced: bool = True
    """Whether `update_model` of the engine was called already."""
    listens: bool = True
    """Whether the conversation gets the engine's events; an engine that was passed in may have another listener."""
    own_engine: bool = True
    own_store: bool = True
    source: EngineSource | None = None
    """Makes engines like this one; None when the engine itself was passed in."""

    def resumed(self) -> OpenedSession:
        """Load the conversation: its window, its last token count, its cost; returns self."""
        conversation = self.conversation
        if self.listens:
            conversation.engine.engine.on_event = conversation.emit_from_engine
        branch = conversation.branch
        branch.switch(branch.number or branch.store.head(branch.conversation, owner=branch.owner))
        saved = load(branch)
        conversation.reload(saved)
        rows = branch.store.journal(branch.conversation, owner=branch.owner)
        conversation.accounts.resume(rows)
        count = resume_meter(conversation.meter, branch, saved, rows)
        if not conversation.engine.is_foreign:
            tools = count.tools if count is not None else 0
            conversation.refire_at = refire_at(branch, saved.items, rows, conversation.engine.engine, tools)
        return self

    def another(self, session_id: str | None) -> Conversation:
        """Return a conversation of another name with the same model, engine and store."""
        branch = self.conversation.branch
        self.conversation = self._like(Branch(branch.store, session_id or new_id(), branch.owner))
        return self.resumed().conversation

    def forkable(self) -> EngineSource:
        """Return what makes the engine of a fork; raises SessionError when there is none."""
        if self.source is None:
            raise SessionError("a session whose engine was handed over cannot be forked: name the engine instead.")
        return self.source

    def on_branch(self, number: int, *, parent: int | None) -> OpenedSession:
        """Open another branch with the same store and an engine of its own; `parent` if it was forked just now."""
        engine, notice = _engine(None, self.forkable())
        before = self.conversation
        host = replace(
            before.engine,
            engine=engine,
            built_in=_built_in(self.config, self.source, engine, before.route),
            _built_in=None,
        )
        branch = Branch(before.branch.store, before.id, before.branch.owner, number, parent=parent)
        return OpenedSession(
            config=self.config,
            conversation=self._like(branch, host),
            system=self.system,
            notices=[notice] if notice else [],
            own_store=False,
            source=self.source,
        ).resumed()

    def close(self) -> None:
        """Close the engine and the store, unless they were passed in."""
        try:
            if self.own_engine:
                self.conversation.engine.close()
            elif self.listens:
                self.conversation.engine.engine.on_event = None
        finally:
            if self.own_store:
                self.conversation.branch.store.close()

    def _like(self, branch: Branch, engine: EngineHost | None = None) -> Conversation:
        """Return a conversation on a branch with the model, the listener and the settings of this one."""
        before = self.conversation
        return Conversation(
            branch,
            engine or before.engine,
            route=before.route,
            dialect=before.dialect,
            caching=_caching(self.config, before.route, before.dialect),
            automatic=before.automatic,
            sink=before.sink,
        )


def open_session(
    session_id: str | None,
    *,
    model: str | None,
    provider: str | None,
    base_url: str | None,
    context_length: int | None,
    engine: str | ContextEngine | EngineSource | None,
    store: Store | str | os.PathLike[str] | None,
    config: Config | Mapping[str, Any] | str | os.PathLike[str] | None,
    system: str | None,
    dialect: Dialect,
    owner: str,
    platform: str,
    on_event: Sink | None,
    llm: LLM | Literal["auto"] | None = "auto",
    api_key: str | None = None,
    api_mode: str | None = None,
    engine_tools: bool = True,
    branch: int | None = None,
    parent: int | None = None,
) -> OpenedSession:
    """Open or resume a conversation on a branch, by default its head; `parent` is the branch it was just forked from.

    Nothing is written, and the engine's session is not started yet.
    """
    converter_of(dialect)  # raises SessionError for an unknown one
    check_texts(session_id=session_id, model=model, provider=provider, base_url=base_url, system=system, owner=owner)
    check_window(context_length)
    check_engine(engine)
    check_store(store)
    check_sink(on_event)
    settings = Config.coerce(config)
    key = session_id or new_id()
    given = engine if isinstance(engine, ContextEngine) else None
    route = route_of(settings, model, provider, base_url, dialect)
    window, notice = _window(settings, route, context_length or (given.context_length if given else 0))
    route = route.with_window(window)
    kept, own_store = _store(settings, store)
    source = _source(settings, engine, route, store=kept, llm=llm, api_key=api_key, api_mode=api_mode)
    chosen, fell_back = _engine(engine, source)
    if own_store and source is not None and source.is_unkept(key):
        kept = open_store(":memory:")
    host = EngineHost(
        engine=chosen,
        start=_start(settings, route, platform),
        built_in=_built_in(settings, source, chosen, route),
        offers_tools=engine_tools,
        **_routing(settings, engine, chosen, route, llm),
    )
    conversation = Conversation(
        Branch(kept, key, owner, branch, parent=parent),
        host,
        route=route,
        dialect=dialect,
        caching=_caching(settings, route, dialect),
        automatic=settings.compression.enabled,
        sink=with_spans(on_event),
    )
    return OpenedSession(
        config=settings,
        conversation=conversation,
        system=system,
        notices=[text for text in (notice, fell_back) if text],
        introduced=chosen is not given,
        listens=getattr(chosen, "on_event", None) is None,
        own_engine=chosen is not given,
        own_store=own_store,
        source=source,
    ).resumed()


def route_of(config: Config, model: str | None, provider: str | None, base_url: str | None, dialect: Dialect) -> Route:
    """Return the model and its address, from the arguments and else from the configuration."""
    configured = "" if config.model.provider == "auto" else config.model.provider
    served_by = provider or configured
    if not served_by and dialect == "anthropic" and not base_url:
        served_by = "anthropic"
    name = model or config.model.default or ""
    served_by = "" if served_by == "auto" else served_by
    return Route(
        model=name,
        provider=served_by,
        base_url=base_url or config.model.base_url or "",
        own_price=own_price(name, served_by, config.own_prices()) if config.prices else None,
    )


def switched(
    opened: OpenedSession, model: str, provider: str | None, base_url: str | None, context_length: int | None
) -> tuple[Route, CachePolicy]:
    """Return the route to another model, and its cache policy."""
    config, before = opened.config, opened.conversation
    route = route_of(
        config, model, provider or before.route.provider, base_url or before.route.base_url, before.dialect
    )
    window, notice = _window(config, route, context_length or 0)
    opened.notices = [notice] if notice else []
    route = route.with_window(window)
    return route, _caching(config, route, before.dialect)


def new_id() -> str:
    """Return a new name for a conversation: the time, and a random part."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"


def _window(config: Config, route: Route, given: int) -> tuple[int, str]:
    """Return the model's context length, and a notice when it is not known."""
    known = given or known_window(config, route.model, route.provider)
    if known:
        return known, ""
    return DEFAULT_WINDOW, assumed_window(route.model)


def _caching(config: Config, route: Route, dialect: Dialect) -> CachePolicy:
    """Return the cache policy of the provider; it is switched off for a dialect that has no cache marks."""
    policy = choose(
        model=route.model,
        provider=route.provider,
        base_url=route.base_url or None,
        settings=config.prompt_caching,
        dialect="anthropic" if dialect == "anthropic" else "",
    )
    converter = converter_of(dialect)
    return policy if converter is None or converter.marks else replace(policy, enabled=False)


def _store(config: Config, store: Store | str | os.PathLike[str] | None) -> tuple[Store, bool]:
    """Return the store, and whether it was opened here."""
    if store is None or isinstance(store, (str, os.PathLike)):
        return open_store(store, home=config.home, url=config.store.url), True
    return store, False


def _source(
    config: Config, engine: str | ContextEngine | EngineSource | None, route: Route, **options: Any
) -> EngineSource | None:
    """Return what makes the engine, with these options; None when the engine itself was passed in."""
    if not isinstance(engine, ContextEngine):
        return engine if isinstance(engine, EngineSource) else _named_source(config, engine, route, **options)
    defaults = {"llm": "auto", "api_key": None, "api_mode": None}
    given = [name for name, default in defaults.items() if options[name] != default]
    if given:
        raise SessionError(f"an engine that is handed over takes no options: leave out {', '.join(given)}.")
    return None


def _named_source(config: Config, name: str | None, route: Route, **options: Any) -> EngineSource:
    """Return what makes the engine of a name for the model of a route."""
    return EngineSource(
        config,
        name=name,
        model=route.model,
        provider=route.provider,
        base_url=route.base_url,
        context_length=route.context_length,
        **options,
    )


def _engine(given: Any, source: EngineSource | None) -> tuple[ContextEngine, str]:
    """Return the engine, and a notice when it is not the one that was asked for."""
    if source is None:
        return given, ""
    chosen = source.new_engine()
    name = getattr(chosen, "name", "")
    fell_back = name == "compressor" != source.name
    return chosen, f"engine {source.name!r} cannot be used; the compressor takes its place" if fell_back else ""


def _built_in(
    config: Config, source: EngineSource | None, engine: ContextEngine, route: Route
) -> Callable[[], ContextEngine] | None:
    """Return what makes the built-in engine that folds if a third party's fails; None for an engine of ours."""
    if type(engine).__module__.startswith(OWN_MODULES) or takes_branch(engine):
        return None
    return (source or _named_source(config, BUILT_IN, route)).built_in


def _start(config: Config, route: Route, platform: str) -> dict[str, Any]:
    home = str(config.home)
    return {
        "platform": platform,
        "model": route.model,
        "context_length": route.context_length,
        "leporello_home": home,
        "hermes_home": home,
    }


def _routing(
    config: Config, asked: Any, engine: ContextEngine, route: Route, llm: LLM | Literal["auto"] | None
) -> dict[str, Any]:
    """Return the fields of EngineHost that say where `call_llm` of a plugin for Hermes Agent goes."""
    if isinstance(asked, ContextEngine) or type(engine).__module__.startswith(OWN_MODULES):
        return {}
    return {"llm": _connected(config, route) if llm == "auto" else llm, "routed": True}


def _connected(config: Config, route: Route) -> LLM | None:
    from leporello.llm import connect

    return connect(config, main=config.model.routed(route.model, route.provider, route.base_url))
