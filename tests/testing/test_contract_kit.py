"""The contract kit is itself under test: a good engine passes, and a deliberately broken one per promise is caught."""

from __future__ import annotations

import os
from typing import Any

import pytest

from leporello import ContextCompressor, ContextEngine
from leporello.errors import PluginWarning
from leporello.messages import Message, role_of
from leporello.testing import ContractSuite, check_engine
from leporello.testing.contract import CHECKS

pytestmark = pytest.mark.slow

CONVERSATIONS = 300 if os.environ.get("LEPORELLO_SOAK") else 30


class TestTheCompressor(ContractSuite):
    """The built-in engine keeps every promise that the kit can see."""

    conversations = CONVERSATIONS

    def make_engine(self, **kwargs: Any) -> ContextEngine:
        return ContextCompressor(**kwargs)


def statuses(make: Any, *checks: str) -> dict[str, str]:
    return {result.check: result.status for result in check_engine(make, conversations=20, checks=checks or None)}


def test_nothing_is_left_unchecked_for_an_engine_that_takes_model_and_clock() -> None:
    assert statuses(ContextCompressor) == dict.fromkeys(CHECKS, "passed")


class Nameless(ContextCompressor):
    @property
    def name(self) -> str:
        return ""


class FiresWithoutWindow(ContextCompressor):
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) >= max(self.threshold_tokens, 1)


class ForgetsToReset(ContextCompressor):
    def on_session_reset(self) -> None:
        pass


class BeginsWithTheAssistant(ContextCompressor):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        result = super().compress(messages, *args, **kwargs)
        first = next((i for i, m in enumerate(result) if role_of(m) == "user"), None)
        return result if first is None or len(result) == 1 else [m for i, m in enumerate(result) if i != first]


class DropsToolResults(ContextCompressor):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        return [m for m in super().compress(messages, *args, **kwargs) if role_of(m) != "tool"]


class RewordsTheNewestUserMessage(ContextCompressor):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        result = super().compress(messages, *args, **kwargs)
        newest = max((i for i, m in enumerate(result) if role_of(m) == "user"), default=None)
        if newest is not None:
            result[newest] = {"role": "user", "content": "Continue."}
        return result


class Grows(ContextCompressor):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        return [{"role": "system", "content": "Be brief. " * 500}, *[m for m in messages if role_of(m) != "system"]]


class DoesNothing(ContextCompressor):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        return list(messages)


class BreaksWithItsModel(ContextCompressor):
    def __init__(self, context_length: int = 0, *, llm: Any = None, clock: Any = None) -> None:
        super().__init__(context_length)
        self.model = llm

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        if len(messages) > 30:
            self.model.complete([{"role": "user", "content": "Summarise."}], max_tokens=100, timeout=5)
        return super().compress(messages, *args, **kwargs)


class NeverTriesTheModelAgain(ContextCompressor):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        result = super().compress(messages, *args, **kwargs)
        if self.last_compaction and self.last_compaction.status == "fallback":
            self._summariser.configure(None)
        return result


class FiresEveryTurn(ContextCompressor):
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return 0 < self.threshold_tokens <= (prompt_tokens or 0)


class AsksTooOften(BreaksWithItsModel):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        for _ in range(100):
            self.model.complete([{"role": "user", "content": "Summarise."}], max_tokens=100, timeout=5)
        return super().compress(messages, *args, **kwargs)


class ForgetsThePrompt(ContextCompressor):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        return [m for m in super().compress(messages, *args, **kwargs) if role_of(m) != "system"]


class SummarisesInASystemMessage(ContextCompressor):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        tail = messages[-6:]
        return [{"role": "system", "content": "Some turns are gone."}, *tail] if len(messages) > 20 else list(messages)


class ReturnsATuple(ContextCompressor):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> Any:
        return tuple(messages)


class ChangesItsInput(ContextCompressor):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        result = super().compress(messages, *args, **kwargs)
        if messages:
            messages[0]["content"] = "changed"
        return result


@pytest.mark.parametrize(
    ("engine", "caught_by"),
    [
        (Nameless, "contract"),
        (FiresWithoutWindow, "lifecycle"),
        (ForgetsToReset, "lifecycle"),
        (BeginsWithTheAssistant, "valid"),
        (DropsToolResults, "valid"),
        (RewordsTheNewestUserMessage, "newest"),
        (Grows, "shrinks"),
        (DoesNothing, "fits"),
        (BreaksWithItsModel, "failures"),
        (NeverTriesTheModelAgain, "failures"),
        (FiresEveryTurn, "bounded"),
        (AsksTooOften, "bounded"),
        (ChangesItsInput, "input"),
        (Grows, "accepted"),
        (RewordsTheNewestUserMessage, "accepted"),
        (ReturnsATuple, "accepted"),
    ],
)
def test_a_broken_engine_is_caught(engine: Any, caught_by: str) -> None:
    assert statuses(engine, caught_by) == {caught_by: "failed"}


@pytest.mark.parametrize(
    ("engine", "repaired"),
    [
        (BeginsWithTheAssistant, "the first message after the system messages is not from the user"),
        (DropsToolResults, "put messages that the model has not read back"),
        (ForgetsThePrompt, "put the system prompt back"),
        (SummarisesInASystemMessage, "placed a message of the engine as a summary"),
    ],
)
def test_the_author_is_told_what_a_session_repairs(engine: Any, repaired: str) -> None:
    (result,) = check_engine(engine, conversations=20, checks=["accepted"])
    assert result.status == "passed"
    assert result.detail.startswith("repaired: ")
    assert repaired in result.detail

    class Suite(ContractSuite):
        def make_engine(self, **kwargs: Any) -> ContextEngine:
            return engine(**kwargs)  # type: ignore[no-any-return]

    with pytest.warns(PluginWarning, match=repaired):
        Suite().test_accepted_by_a_session()


def test_what_cannot_be_seen_is_reported_as_not_checked() -> None:
    def without_model(context_length: int = 0) -> ContextEngine:
        return ContextCompressor(context_length)

    results = {result.check: result for result in check_engine(without_model, checks=["failures", "bounded"])}
    assert results["failures"].status == "not checked"
    assert results["failures"].detail == "the engine never asked a model"
    assert results["bounded"].status == "not checked"


def test_a_suite_without_make_engine_says_what_to_do() -> None:
    with pytest.raises(NotImplementedError, match="make_engine"):
        ContractSuite().test_contract()


class Leaves(ContextCompressor):
    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        raise SystemExit(3)


def test_an_engine_that_wants_to_end_the_program_fails_its_checks() -> None:
    assert "failed" in statuses(Leaves).values()
