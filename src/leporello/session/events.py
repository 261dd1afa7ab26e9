"""What happens in a session beyond compactions: answers with their cost, engine tools, a prefix that moved."""

from __future__ import annotations

from dataclasses import dataclass

from leporello.events import Event


@dataclass(frozen=True, kw_only=True)
class RequestReady(Event):
    """A request was made and goes out now.

    `tokens` are the prompt tokens of all of it, system prompt, tools and messages: the provider's count of the request
    before with an estimate of what came since, or an estimate alone.
    """

    model: str
    provider: str
    messages: int
    tokens: int
    context_length: int

    def __str__(self) -> str:
        share = f" ({self.tokens / self.context_length:.0%} of the window)" if self.context_length else ""
        return f"request: {self.messages} messages, {self.tokens:,} tokens{share}"


@dataclass(frozen=True, kw_only=True)
class AnswerRecorded(Event):
    """The model answered; `cost_usd` is None when the price is not known.

    Tokens are the provider's counts. `prompt_tokens` is all that the model read: system prompt, tools and messages,
    with what came from the cache or was written to it, which `cache_read_tokens` and `cache_write_tokens` name again.
    """

    model: str
    provider: str
    finish: str
    answer_id: str
    prompt_tokens: int
    completion_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float | None
    incomplete: bool = False

    def __str__(self) -> str:
        cached = f", {self.cache_read_tokens:,} from the cache" if self.cache_read_tokens else ""
        cost = "" if self.cost_usd is None else f", ${self.cost_usd:.4f}"
        broken = ", broke off" if self.incomplete else ""
        return f"answer: {self.prompt_tokens:,} tokens read{cached}, {self.completion_tokens:,} written{cost}{broken}"


@dataclass(frozen=True, kw_only=True)
class RequestFailed(Event):
    """A request got no answer that can be used."""

    error: str

    def __str__(self) -> str:
        return f"request failed: {self.error}"


@dataclass(frozen=True, kw_only=True)
class ToolAnswered(Event):
    """The engine answered a call of one of its own tools."""

    name: str
    call_id: str
    seconds: float

    def __str__(self) -> str:
        return f"the engine answered {self.name} in {self.seconds * 1000:.0f} ms"


@dataclass(frozen=True, kw_only=True)
class PrefixMoved(Event):
    """The front of the request is another one than before: what the provider cached of it is lost once.

    `tokens_lost` is the estimate of what stood behind the first change in the request before, tools included when they
    changed.
    """

    reason: str
    index: int | None
    tokens_lost: int

    def __str__(self) -> str:
        return f"the cached prefix moved ({self.reason}): {self.tokens_lost:,} tokens are read anew"


@dataclass(frozen=True, kw_only=True)
class WindowCorrected(Event):
    """The provider named another window than the one that was known."""

    before: int
    after: int

    def __str__(self) -> str:
        return f"the model's window is {self.after:,} tokens, not {self.before:,}"
