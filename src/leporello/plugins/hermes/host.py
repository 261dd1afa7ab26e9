"""What plugins reach through the names of Hermes Agent: the summariser, the configuration and the home folder."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from leporello.config import Config
from leporello.config.engines import LOSSLESS
from leporello.config.home import home_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leporello.llm import LLM, Completion
    from leporello.messages import Message

DEFAULT_MAX_TOKENS = 4096
NO_MODEL = (
    "no model is configured for summaries: set OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY, or name a "
    "model of an OpenAI-compatible server, auxiliary.compression.model, and its address, auxiliary.compression.base_url"
)


class _Unset:
    """Stands for "not given", which is not the same as "no model"."""


_UNSET: Final = _Unset()
_routed: ContextVar[LLM | _Unset | None] = ContextVar("leporello_routed_llm", default=_UNSET)


class _Host:
    """The configuration and the model of the engine that was loaded last: what plugins reach without a route."""

    config: Config | None = None
    llm: LLM | _Unset | None = _UNSET


_host = _Host()


@contextmanager
def route_llm(llm: LLM | None) -> Iterator[None]:
    """Let the `call_llm` of plugins reach `llm` inside the block; None: they are told that there is no model."""
    token = _routed.set(llm)
    try:
        yield
    finally:
        _routed.reset(token)


def serve(config: Config, **llm: LLM | None) -> None:
    """Make a configuration, and a model if one is given as `llm`, what plugins reach outside every `route_llm`."""
    _host.config = config
    _host.llm = llm.get("llm", _UNSET)


def call_llm(
    task: str | None = None,
    *,
    messages: list[Message],
    model: str | None = None,
    max_tokens: int | None = None,
    timeout: float | None = None,
    **_unused: Any,
) -> SimpleNamespace:
    """Ask the summariser; answers in the shape of a chat completion.

    Every `task` goes to the one model that `auxiliary.compression` describes. `model` asks the same provider for
    another model, unless the model was given as an object. Sampling parameters are not sent.
    """
    del task
    limit = timeout or _config().auxiliary.compression.timeout_seconds
    answer = _summariser(model).complete(messages, max_tokens=max_tokens or DEFAULT_MAX_TOKENS, timeout=limit)
    return _chat_completion(answer)


def load_config() -> dict[str, Any]:
    """Return the whole configuration as plain values; the blocks of engines are as the file gives them."""
    config = _config()
    engines = {name: config.engine_block(name) for name in config.given_blocks()}
    return config.model_dump(mode="json", exclude={LOSSLESS}) | engines


def get_hermes_home() -> Path:
    """Return the home folder, which plays the part of Hermes Agent's."""
    return _host.config.home if _host.config else home_folder()


def known_window(model: str, provider: str) -> int:
    """Return a model's window as the configuration or the table of windows knows it, else 0."""
    from leporello.plugins.engine_factory import known_window as window

    return window(_config(), model, provider)


def _config() -> Config:
    return _host.config or Config.load()


def _summariser(model: str | None) -> LLM:
    for llm in (_routed.get(), _host.llm):
        if not isinstance(llm, _Unset):
            break
    else:
        llm = _connect(model)
    if llm is None:
        raise RuntimeError(NO_MODEL)
    return llm


def _connect(model: str | None) -> LLM | None:
    from leporello.llm.connect import connect

    config = _config()
    if not model:
        return connect(config)
    compression = config.auxiliary.compression.model_copy(update={"model": model})
    auxiliary = config.auxiliary.model_copy(update={"compression": compression})
    return connect(config.model_copy(update={"auxiliary": auxiliary}))


def _chat_completion(answer: Completion) -> SimpleNamespace:
    message = SimpleNamespace(role="assistant", content=answer.text, tool_calls=None)
    return SimpleNamespace(
        model=answer.model,
        choices=[SimpleNamespace(index=0, message=message, finish_reason=answer.finish_reason)],
        usage=SimpleNamespace(**answer.usage),
    )
