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
from leporello.plugins.make import assumed_window, known_window
from leporello.session.arguments import check_engine, check_sink, check_store, check_texts, check_window
from leporello.session.conversation import Conversation
from leporello.session.dialects import DIALECTS
from leporello.session.engine_host import OURS, EngineHost, takes_branch
from leporello.session.entries import load
from leporello.session.resumption import last_count, rests_until
from leporello.session.route import Route
from leporello.session.telemetry import with_spans
from leporello.store import Branch, open_store
from leporello.tokens import DEFAULT_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leporello.caching import CachePolicy
    from leporello.events import Sink
    from leporello.llm import LLM
    from leporello.store import Store


@dataclass(kw_only=True)
class Opened:
    """What a session is made of, and what it must give back."""

    config: Config
    conversation: Conversation
    system: str | None = None
    notices: list[str] = field(default_factory=list)
    introduced: bool = True
    """Whether the engine knows the model already."""
    listens: bool = True
    """Whether the conversation hears what the engine reports; one that was handed over may have a listener."""
    own_engine: bool = True
    own_store: bool = True
    source: EngineSource | None = None
    """Where the engine is from: whoever opens many conversations on one model gives it to the next."""

    def resumed(self) -> Opened:
        """Bring the conversation to where it was left: its window, its last count, what it cost."""
        conversation = self.conversation
        if self.listens:
            conversation.engine.engine.on_event = conversation.from_engine
        branch = conversation.branch
        here: dict[str, Any] = {"owner": branch.owner}
        branch.switch(branch.number or branch.store.head(branch.conversation, **here))
        saved = load(branch)
        conversation.follow(saved)
        conversation.accounts.resume(branch.store.requests(branch.conversation, **here))
        count = last_count(branch) if saved.whole else None
        if count is not None:
            conversation.meter.resumed(count.tokens, saved.length_of(count.items), count.tools)
        if not conversation.engine.is_foreign:
            tools = count.tools if count is not None else 0
            conversation.rests_until = rests_until(branch, conversation.engine.engine, tools)
        return self

    def another(self, session_id: str | None) -> Conversation:
        """Return another conversation with the same model, engine and store."""
        branch = self.conversation.branch
        self.conversation = self._like(Branch(branch.store, session_id or new_id(), branch.owner))
        return self.resumed().conversation

    def forkable(self) -> EngineSource:
        """Return where the engine of a fork comes from."""
        if self.source is None:
            raise SessionError("a session whose engine was handed over cannot be forked: name the engine instead.")
        return self.source

    def on_branch(self, number: int) -> Opened:
        """Return what a session on another branch is made of: the same store, and an engine of its own."""
        engine, notice = _engine(None, self.forkable())
        before = self.conversation
        host = replace(
            before.engine,
            engine=engine,
            built_in=_built_in(self.config, self.source, engine, before.route),
            _built_in=None,
            _taken={},
        )
        branch = Branch(before.branch.store, before.id, before.branch.owner, number, parent=before.branch.number)
        return Opened(
            config=self.config,
            conversation=self._like(branch, host),
            system=self.system,
            notices=[notice] if notice else [],
            own_store=False,
            source=self.source,
        ).resumed()

    def close(self) -> None:
        """Give back what was opened here; an engine or a store that was handed over stays open."""
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
    dialect: str,
    owner: str,
    platform: str,
    on_event: Sink | None,
    llm: LLM | Literal["auto"] | None = "auto",
    api_key: str | None = None,
    api_mode: str | None = None,
    branch: int | None = None,
    parent: int | None = None,
) -> Opened:
    """Open or resume a conversation, on its head unless a branch is named; `parent` if it was just forked from one.

    Nothing is written, and the engine is not started yet.
    """
    if dialect not in DIALECTS:
        raise SessionError(f"there is no dialect {dialect!r}: use 'openai' or 'anthropic'.")
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
    return Opened(
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


def route_of(config: Config, model: str | None, provider: str | None, base_url: str | None, dialect: str) -> Route:
    """Return the model and where it is, from what the caller said and else from the configuration."""
    configured = "" if config.model.provider == "auto" else config.model.provider
    served_by = provider or configured
    if not served_by and dialect == "anthropic" and not base_url:
        served_by = "anthropic"
    return Route(
        model=model or config.model.default or "",
        provider="" if served_by == "auto" else served_by,
        base_url=base_url or config.model.base_url or "",
    )


def switched(
    opened: Opened, model: str, provider: str | None, base_url: str | None, context_length: int | None
) -> tuple[Route, CachePolicy]:
    """Return the route to another model, and what is done for its cache."""
    config, before = opened.config, opened.conversation
    route = route_of(
        config, model, provider or before.route.provider, base_url or before.route.base_url, before.dialect
    )
    window, notice = _window(config, route, context_length or 0)
    opened.notices = [notice] if notice else []
    route = route.with_window(window)
    return route, _caching(config, route, before.dialect)


def new_id() -> str:
    """Return a name for a conversation that has none: when it began, and something nobody else has."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"


def _window(config: Config, route: Route, given: int) -> tuple[int, str]:
    """Return the model's window, and what the user must know about it."""
    known = given or known_window(config, route.model, route.provider)
    if known:
        return known, ""
    return DEFAULT_WINDOW, assumed_window(route.model)


def _caching(config: Config, route: Route, dialect: str) -> CachePolicy:
    """Return what is done for the cache; requests in OpenAI's format may meet a converter, so the provider decides."""
    return choose(
        model=route.model,
        provider=route.provider,
        base_url=route.base_url or None,
        settings=config.prompt_caching,
        dialect="anthropic" if dialect == "anthropic" else "",
    )


def _store(config: Config, store: Store | str | os.PathLike[str] | None) -> tuple[Store, bool]:
    """Return the store, and whether it was opened here."""
    if store is None or isinstance(store, (str, os.PathLike)):
        return open_store(store, home=config.home, url=config.store.url), True
    return store, False


def _source(config: Config, engine: Any, route: Route, **options: Any) -> EngineSource | None:
    """Return where the engine comes from; None when it was handed over itself."""
    if isinstance(engine, ContextEngine):
        given = sorted(name for name in ("api_key", "api_mode") if options[name] is not None)
        given += ["llm"] if options["llm"] != "auto" else []
        if given:
            raise SessionError(f"an engine that is handed over takes no options: leave out {', '.join(given)}.")
        return None
    if isinstance(engine, EngineSource):
        return engine
    return EngineSource(
        config,
        name=engine,
        model=route.model,
        provider=route.provider,
        base_url=route.base_url,
        context_length=route.context_length,
        **options,
    )


def _engine(given: Any, source: EngineSource | None) -> tuple[ContextEngine, str]:
    """Return the engine, and what the user must know when it is not the one that was asked for."""
    if source is None:
        return given, ""
    chosen = source.new_engine()
    name = getattr(chosen, "name", "")
    fell_back = name == "compressor" != source.name
    return chosen, f"engine {source.name!r} cannot be used; the compressor takes its place" if fell_back else ""


def _built_in(
    config: Config, source: EngineSource | None, engine: ContextEngine, route: Route
) -> Callable[[], ContextEngine] | None:
    """Return what makes the engine that folds where a third party's does not; None for an engine of ours."""
    if type(engine).__module__.startswith(OURS) or takes_branch(engine):
        return None
    if source is None:
        source = EngineSource(
            config,
            name=BUILT_IN,
            model=route.model,
            provider=route.provider,
            base_url=route.base_url,
            context_length=route.context_length,
        )
    return source.built_in


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
    """Decide where the model calls of a plugin go that asks for a summariser in the manner of Hermes Agent."""
    if isinstance(asked, ContextEngine) or type(engine).__module__.startswith(OURS):
        return {}
    return {"llm": _connected(config, route) if llm == "auto" else llm, "routed": True}


def _connected(config: Config, route: Route) -> LLM | None:
    from leporello.llm import connect

    own = {
        "default": route.model or None,
        "base_url": route.base_url or None,
        "provider": route.provider or "auto",
    }
    return connect(config, main=config.model.model_copy(update=own))
