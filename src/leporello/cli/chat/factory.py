"""From the options of the command line to a conversation: the model, the store, the engine, the tools."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leporello.agent import Agent, MainModel, Toolbox, Workspace, default_tools, main_route, system_prompt
from leporello.agent.turn_hooks import plugin_tools
from leporello.cli import local_model
from leporello.cli.chat.kept_settings import KeptSettings
from leporello.cli.chat.lock import ChatLock
from leporello.cli.format import waiting
from leporello.cli.store_options import NothingFoundError
from leporello.config.engines import BUILT_IN
from leporello.config.keys import VARIABLES, api_key
from leporello.errors import ConfigError, LeporelloError
from leporello.llm.connect import DEFAULT_MODELS
from leporello.plugins import EngineSource
from leporello.plugins.enabled import EnabledPlugins
from leporello.plugins.engine_factory import known_window
from leporello.session import Session
from leporello.store import open_store
from leporello.tokens import DEFAULT_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.agent import MainRoute
    from leporello.agent.loop import Confirm
    from leporello.agent.tools.write_file import FileWritten
    from leporello.config import Config
    from leporello.engine import ContextEngine
    from leporello.events import Sink
    from leporello.store import Store

WITHOUT_A_KEY: Final = (
    "\nWithout a key, `leporello chat --local` talks to a small real model on this machine, and `make run` "
    "(`leporello demo`) folds a long conversation before your eyes."
)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a conversation shall be; None is left to what it was held with, and to config.yaml.

    `llm` goes to the engine, as its summariser. `kept_engine` is the engine that the conversation was held with: unlike
    `engine` it need not be usable. `kept` names what was taken from there. A model that is not
    `lasting` is not noted, and none that was noted takes its place.
    """

    config: Config
    address: str | None = None
    session_id: str | None = None
    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    context_length: int | None = None
    engine: str | None = None
    workspace: Path | None = None
    tools: bool = True
    yes: bool = False
    llm: dict[str, Any] = field(default_factory=dict)
    kept_engine: str | None = None
    kept: tuple[str, ...] | None = None
    lasting: bool = True

    @property
    def folder(self) -> Path:
        """The folder that the tools are bounded to."""
        return self.workspace or Path()

    def route(self) -> MainRoute:
        """Return where the model is reached; what is missing is said, with what can be done without it."""
        try:
            return main_route(
                self.config,
                model=self.model or self.config.model.default or default_model(self),
                provider=self.provider,
                base_url=self.base_url,
            )
        except ConfigError as error:
            if error.key in {None, "model.base_url"} or any(map(api_key, DEFAULT_MODELS)):
                raise
            hint = f"{self._first_step() or error.hint or ''}{WITHOUT_A_KEY}"
            raise ConfigError(error.problem, file=error.file, key=error.key, hint=hint) from error

    def _first_step(self) -> str:
        """Say what to set when neither a model was chosen nor a key set; else ""."""
        if self.model or self.config.model.default:
            return ""
        if self.base_url or self.config.model.base_url:
            return "Name it with --model, or set it with `leporello config set model.default NAME`."
        return f"Set a key, one of {', '.join(VARIABLES[name] for name in DEFAULT_MODELS)}: a model of theirs is taken."


def default_model(setting: Setting) -> str | None:
    """Return an inexpensive model when none is chosen: of the provider, else of the first whose key is set."""
    if setting.base_url or setting.config.model.base_url:
        return None
    provider = setting.provider or setting.config.model.provider
    if provider in DEFAULT_MODELS:
        return DEFAULT_MODELS[provider]
    return next((model for name, model in DEFAULT_MODELS.items() if api_key(name)), None)


def model_note(setting: Setting) -> str:
    """Say which model was taken when none was chosen; else ""."""
    if setting.model or setting.config.model.default:
        return ""
    choose = "`leporello config set model.default NAME` chooses another"
    return f"no model is chosen: {default_model(setting)} is used; {choose}"


def as_it_was_left(setting: Setting, store_url: str) -> Setting:
    """Return a setting in which what was not asked for is what the conversation was held with."""
    if setting.session_id is None or setting.kept is not None:
        return setting
    kept = KeptSettings.load(setting.config.home, store_url, setting.session_id)
    taken: dict[str, Any] = {}
    names: list[str] = []
    if kept.model and setting.lasting and not (setting.model or setting.provider or setting.base_url):
        taken |= {"model": kept.model, "provider": kept.provider or None, "base_url": kept.base_url or None}
        names += ["model", *(["address"] if kept.base_url else [])]
    if kept.engine and not setting.engine:
        taken["kept_engine"] = kept.engine
        names.append("engine")
    if kept.workspace and setting.tools and setting.workspace is None and Path(kept.workspace).is_dir():
        taken["workspace"] = Path(kept.workspace)
        names.append("folder")
    return replace(setting, **taken, kept=tuple(names))


@contextmanager
def local(setting: Setting) -> Iterator[Setting]:
    """Let a small real model on this machine take the place of the configured one, for the length of a block.

    Its summaries would be of no use, so that they are made without a model.
    """
    model = local_model.LocalModel()
    with ExitStack() as stack:
        with waiting("starting the model"):
            stack.enter_context(model)
        yield replace(
            setting,
            model=local_model.NAME,
            provider="custom",
            base_url=model.base_url,
            context_length=local_model.WINDOW,
            tools=False,
            llm={"llm": None},
            lasting=False,
        )


class ReadySource(EngineSource):
    """A source whose engine is made before the one in use is given up: one that cannot be used is a PluginError."""

    def prepare(self) -> None:
        """Make the engine."""
        self._ready: ContextEngine | None = self.make()

    def new_engine(self) -> ContextEngine:
        """Return the engine that is ready; without one, make it, or the compressor in its place."""
        ready, self._ready = getattr(self, "_ready", None), None
        return ready or super().new_engine()


@dataclass(frozen=True, kw_only=True)
class OpenedChat:
    """A conversation with everything it needs; its opener closes it."""

    setting: Setting
    route: MainRoute
    agent: Agent
    source: EngineSource
    store: Store
    lock: ChatLock

    def note_settings(self) -> None:
        """Note what the conversation is held with, for the next time."""
        setting, session = self.setting, self.agent.session
        place = setting.config.home, self.store.url, session.id
        noted = replace(KeptSettings.load(*place), engine=self.engine_name)
        if setting.lasting:
            route = self.route
            noted = replace(noted, model=route.model, provider=route.provider, base_url=route.base_url or "")
        if setting.tools:
            noted = replace(noted, workspace=str(setting.folder.resolve()))
        noted.save(*place)

    @property
    def engine_name(self) -> str:
        """The engine in use, by the name it is chosen with."""
        return BUILT_IN if self.agent.session.engine.name == BUILT_IN else self.source.name

    def close(self) -> None:
        """End the conversation properly and give everything back."""
        try:
            self.agent.close()
        finally:
            self.store.close()
            self.lock.release()


def newest(setting: Setting) -> str:
    """Return the name of the conversation that changed last."""
    store = open_store(setting.address, home=setting.config.home, url=setting.config.store.url)
    try:
        info = next((one for one in store.conversations(owner="") if one.messages), None)
    finally:
        store.close()
    if info is None:
        raise NothingFoundError(f"there is no conversation in {store.url} yet; leave out --resume to begin one")
    return info.key


def engine_source(
    setting: Setting, route: MainRoute, store: Store, enabled: EnabledPlugins | None = None
) -> ReadySource:
    """Return where the conversation's engine comes from; one that was asked for by name must be usable."""
    config = setting.config
    name = setting.engine or setting.kept_engine or config.context.engine
    window = setting.context_length or known_window(config, route.model, route.provider) or DEFAULT_WINDOW
    source = ReadySource(
        config,
        name=name,
        model=route.model,
        provider=route.provider,
        base_url=route.base_url,
        context_length=window,
        store=store,
        enabled=enabled,
        **setting.llm,
    )
    if setting.engine:
        source.prepare()
    return source


def opened(
    setting: Setting,
    *,
    on_event: Sink | None = None,
    on_output: Sink | None = None,
    on_written: Callable[[FileWritten], None] = lambda _: None,
    confirm: Confirm | None = None,
    source: EngineSource | None = None,
    store: Store | None = None,
    lock: ChatLock | None = None,
    enabled: EnabledPlugins | None = None,
    ready: Callable[[Store], None] = lambda _: None,
) -> OpenedChat:
    """Open the conversation; one that is open in another terminal is a `SessionError`.

    `ready` may raise when the store cannot be used now, before anything is done with it.
    """
    if setting.session_id is None:
        setting.route()  # what is missing is said before a store is made
    kept = store or open_store(setting.address, home=setting.config.home, url=setting.config.store.url)
    setting = as_it_was_left(setting, kept.url)
    try:
        route = setting.route()
        plugins = enabled or EnabledPlugins(setting.config)
        tools = toolbox(setting, on_written, plugins)
        ready(kept)
    except LeporelloError:
        if store is None:
            kept.close()
        raise
    own = lock or ChatLock(setting.config.home, kept.url)
    if setting.session_id:
        own.acquire(setting.session_id)
    chosen = source or engine_source(setting, route, kept, enabled)
    if store is None and setting.session_id and chosen.is_unkept(setting.session_id):
        kept = open_store(":memory:")
    session = Session.open(
        setting.session_id,
        model=route.model,
        provider=route.provider,
        base_url=route.base_url,
        context_length=setting.context_length,
        engine=chosen,
        store=kept,
        config=setting.config,
        system=system_prompt() if setting.tools else _talking(),
        dialect=route.dialect,
        platform="cli",
        on_event=on_event,
        engine_tools=setting.tools,
    )
    own.acquire(session.id)
    agent = Agent(
        session,
        MainModel(route),
        tools,
        confirm=_agree if setting.yes else confirm,
        on_output=on_output,
        hooks=plugins.hooks,
    )
    return OpenedChat(setting=setting, route=route, agent=agent, source=chosen, store=kept, lock=own)


def toolbox(setting: Setting, on_written: Callable[[FileWritten], None], plugins: EnabledPlugins) -> Toolbox:
    """Return what the model may do; `on_written` is told of the files that it writes."""
    own = default_tools(Workspace(setting.folder), on_written=on_written)
    return Toolbox([*own, *plugin_tools(plugins.tools, own)] if setting.tools else ())


def _agree(_wanted: object) -> bool:
    return True


def _talking() -> str:
    return files("leporello.cli.chat").joinpath("prompts", "talk.md").read_text("utf-8").strip()
