"""The engines as Hermes Agent uses them: one for each agent, on one store in the Hermes home.

What differs from the contract: it copies the engine that a plugin registered, for every agent. It tells of a new
session by `bind_session_state`, at `/new` by that alone. It calls `on_session_end` and `on_session_start` at every
compaction too, although the conversation goes on. And it never asks `should_compress_preflight`, so the messages come
by a hook. Its messages carry notes of its own (`messages.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakValueDictionary

from leporello.adapters.hermes.auxiliary import AuxiliaryModel, context_length_of
from leporello.adapters.hermes.messages import given_back, said
from leporello.compressor import ContextCompressor
from leporello.config import Config
from leporello.engine import ContextEngine
from leporello.lcm import LCMEngine
from leporello.plugins import hermes
from leporello.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from leporello.llm import LLM
    from leporello.messages import Message
    from leporello.store import Store

NAME: Final = "leporello"
"""What `context.engine` says in Hermes Agent."""
STORE: Final = "leporello.db"
EngineName = Literal["lcm", "compressor"]
COMPACTION: Final = "compression"
"""Why Hermes Agent ends a session, and begins the next one, at a compaction."""

_engines: WeakValueDictionary[str, ForHermes] = WeakValueDictionary()  # by session


@dataclass(frozen=True, kw_only=True)
class EngineMaker:
    """Makes the engine of each agent, from Leporello's own configuration."""

    kind: EngineName
    home: Path
    config: Config = field(default_factory=Config.load)
    _stores: list[Store] = field(default_factory=list, repr=False)

    def new_engine(self) -> ForHermes:
        """Return an engine that no agent has."""
        engine: ForHermes
        if self.kind == "lcm":
            engine = LosslessForHermes(config=self.config, store=self.config.lcm.store or self._store())
        else:
            engine = CompressorForHermes(config=self.config)
        engine.maker = self
        return engine

    def _store(self) -> Store:
        if not self._stores:
            self._stores.append(open_store(self.home / STORE))
        return self._stores[0]


class ForHermes(ContextEngine):
    """What is the same for both engines; it stands before the engine's own class."""

    maker: EngineMaker
    _session_db: Any = None
    _session = ""
    _boundary = False

    if TYPE_CHECKING:

        def use_model(self, llm: LLM | None) -> None:
            """Make summaries with a model; both engines can."""

    @property
    def name(self) -> str:
        """The name by which the plugin's engine is chosen."""
        return NAME

    def clone_for_agent(self) -> ForHermes:
        """Return an engine for another agent."""
        return self.maker.new_engine()

    def __deepcopy__(self, memo: dict[int, Any]) -> ForHermes:
        return self.clone_for_agent()

    def bind_session_state(self, session_db: Any = None, session_id: str = "") -> None:
        """Begin or resume a session; all that Hermes Agent calls at `/new`."""
        self._session_db = session_db
        self._begin(session_id)

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Begin or resume a session; at a compaction the conversation goes on, under whatever name."""
        self._boundary = False
        if kwargs.get("boundary_reason") == COMPACTION:
            self._name_session(session_id)
        else:
            self._begin(session_id)

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:
        """End a session; not at a compaction, at which everything is stored already."""
        if not self._boundary and messages:
            super().on_session_end(session_id, said(messages))

    def on_session_reset(self) -> None:
        """Leave the conversation; Hermes Agent names the next one."""
        self._session = ""
        super().on_session_reset()

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        **more: Any,
    ) -> list[Message]:
        """Fold, and remember that Hermes Agent ends and begins the session for it."""
        count, bare = self.compression_count, said(messages)
        result = super().compress(bare, current_tokens, focus_topic, **more)  # type: ignore[safe-super]
        self._boundary = self.compression_count > count
        return given_back(messages, bare, result)

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        """Take the messages of the session."""
        return super().should_compress_preflight(said(messages))

    def on_turn_complete(self, messages: list[Message], usage: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Take the messages of a turn that is over, from a Hermes Agent that tells."""
        super().on_turn_complete(said(messages), usage, **kwargs)

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Tell whether `/compress` has anything to fold."""
        return super().has_content_to_compress(said(messages))

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a tool call; the messages before it can be found."""
        messages = kwargs.get("messages")
        if isinstance(messages, list):
            kwargs["messages"] = said(messages)
        return super().handle_tool_call(name, args, **kwargs)

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take the provider's count."""
        self._boundary = False
        super().update_from_response(usage)  # type: ignore[safe-super]

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Take over the main model, and let Hermes Agent's auxiliary model write the summaries."""
        from hermes_cli.config import load_config  # type: ignore[import-not-found]

        super().update_model(model, context_length, base_url, api_key, provider, api_mode)
        runtime = {
            "model": model, "provider": provider, "base_url": base_url, "api_key": api_key, "api_mode": api_mode,
        }  # fmt: skip
        window = context_length_of(load_config(), self.context_length)
        self.use_model(AuxiliaryModel(model=model, runtime=runtime, context_length=window))

    def _begin(self, session_id: str) -> None:
        if session_id and session_id != self._session:
            self._name_session(session_id)
            super().on_session_start(self._first_of(session_id))

    def _name_session(self, session_id: str) -> None:
        self._session = session_id
        _engines[session_id] = self

    def _first_of(self, session_id: str) -> str:
        """Return the session that a conversation began with: an older way of compaction begins others for it."""
        passed = {session_id}
        while self._session_db is not None:
            row = self._session_db.get_session(session_id) or {}
            parent = row.get("parent_session_id") or ""
            before = self._session_db.get_session(parent) if parent and parent not in passed else None
            if not before or before.get("end_reason") != COMPACTION:
                break
            passed.add(parent)
            session_id = parent
        return session_id


class LosslessForHermes(ForHermes, LCMEngine):  # type: ignore[misc] # a clone is of the same class
    """The lossless engine in Hermes Agent."""


class CompressorForHermes(ForHermes, ContextCompressor):  # type: ignore[misc] # the same
    """The compressor in Hermes Agent."""


def register_engine(ctx: Any, *, kind: EngineName, home: Path) -> None:
    """Register the engine and the hooks that bring it the messages of its session; called by the plugin."""
    hermes.install()
    ctx.register_context_engine(EngineMaker(kind=kind, home=home).new_engine())
    for hook in ("pre_api_request", "post_llm_call"):
        ctx.register_hook(hook, store_messages)


def store_messages(session_id: str = "", conversation_history: Any = None, **_: Any) -> None:
    """Bring an engine the messages of its session: before each request, and when a turn is over."""
    engine = _engines.get(session_id)
    if isinstance(engine, LCMEngine) and isinstance(conversation_history, list):
        engine.should_compress_preflight(conversation_history)
