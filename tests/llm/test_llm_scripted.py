"""The scripted model: what users put into their own tests."""

import pytest

from leporello.errors import ContextTooLongError, EmptyAnswerError, ModelError, NetworkError, RateLimitError
from leporello.llm import LLM, Completion, FakeClock, ScriptedLLM
from leporello.llm.client import visible_text
from leporello.messages.types import Message
from leporello.tokens import count_messages

HELLO: list[Message] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


def ask(llm: LLM, messages: list[Message] | None = None, timeout: float = 10) -> str:
    return llm.complete(messages or HELLO, max_tokens=100, timeout=timeout).text


def test_answers_are_played_in_order() -> None:
    llm = ScriptedLLM(["one", Completion(text="two"), lambda messages: f"{len(messages)} messages"])
    assert [ask(llm), ask(llm), ask(llm)] == ["one", "two", "2 messages"]


def test_an_error_is_raised_and_the_script_goes_on() -> None:
    llm = ScriptedLLM([RateLimitError("slow down"), "fine"])
    with pytest.raises(RateLimitError):
        ask(llm)
    assert ask(llm) == "fine"


@pytest.mark.parametrize("llm", [ScriptedLLM("again"), ScriptedLLM(["first"], then="again")])
def test_one_answer_or_then_is_given_for_ever(llm: ScriptedLLM) -> None:
    ask(llm)
    assert [ask(llm) for _ in range(3)] == ["again"] * 3


def test_a_call_beyond_the_script_is_the_tests_fault() -> None:
    llm = ScriptedLLM(["only"])
    ask(llm)
    with pytest.raises(AssertionError, match="call 2"):
        ask(llm)
    assert not issubclass(AssertionError, ModelError), "an engine would swallow it"


def test_calls_are_recorded_as_they_were() -> None:
    llm = ScriptedLLM("ok")
    messages: list[Message] = [{"role": "user", "content": "Hello"}]
    ask(llm, messages, timeout=7)
    messages[0]["content"] = "changed later"
    assert (llm.calls[0].max_tokens, llm.calls[0].timeout) == (100, 7)
    assert llm.prompts == ["Hello"]


@pytest.mark.parametrize("said", ["", "  \n", "<think>only thoughts</think>"])
def test_a_text_is_read_as_a_providers(said: str) -> None:
    with pytest.raises(EmptyAnswerError):
        ask(ScriptedLLM(said))


def test_a_completion_is_handed_out_as_it_is() -> None:
    assert ask(ScriptedLLM(Completion(text=""))) == ""


def test_usage_is_counted() -> None:
    usage = ScriptedLLM("four words are here").complete(HELLO, max_tokens=9, timeout=9).usage
    assert usage["prompt_tokens"] == count_messages(HELLO)
    assert usage["completion_tokens"] > 0


def test_a_prompt_above_the_window_is_refused_with_the_numbers() -> None:
    tokens = count_messages(HELLO)
    assert ask(ScriptedLLM("ok", context_length=tokens)) == "ok"
    with pytest.raises(ContextTooLongError) as caught:
        ask(ScriptedLLM("ok", context_length=tokens - 1))
    assert (caught.value.limit, caught.value.actual) == (tokens - 1, tokens)


def test_a_slow_model_moves_the_clock() -> None:
    clock = FakeClock(100)
    ask(ScriptedLLM("ok", seconds=3, clock=clock))
    assert clock() == 103


def test_a_model_slower_than_the_limit_takes_the_limit_and_fails() -> None:
    clock = FakeClock()
    with pytest.raises(NetworkError):
        ask(ScriptedLLM("ok", seconds=30, clock=clock), timeout=5)
    assert clock() == 5


@pytest.mark.parametrize(
    ("said", "visible"),
    [
        ("plain", "plain"),
        ("<think>a\nb</think>\n\nanswer", "answer"),
        ("<thinking>a</thinking><THINK>b</THINK> answer", "answer"),
        ("thoughts without a beginning\n</think>\n\nanswer", "answer"),
        ("<think>cut off in the mid", ""),
        ("the tag `</think>` ends a block", "the tag `</think>` ends a block"),
        ("write <think>x</think> there", "write <think>x</think> there"),
        ("<details>kept</details>", "<details>kept</details>"),
    ],
)
def test_thinking_is_no_part_of_the_text(said: str, visible: str) -> None:
    assert visible_text(said) == visible
