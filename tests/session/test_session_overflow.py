"""A provider's "context too long" leads to one compaction and one retry; nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from leporello.session import Session
from leporello.session.events import WindowCorrected
from leporello.testing.lifecycle import RecordingEngine
from leporello.testing.model_server import WORDINGS, Failure, ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Dialect

pytestmark = pytest.mark.slow


def answered(request: dict[str, Any], server: ModelServer, dialect: Dialect) -> Any:
    if dialect == "anthropic":
        with anthropic.Anthropic(base_url=server.anthropic_url, api_key="any", max_retries=0) as client:
            return client.messages.create(model="any", max_tokens=100, **request)
    with openai.OpenAI(base_url=server.openai_url, api_key="any", max_retries=0) as chat:
        return chat.chat.completions.create(model="any", **request)


def send(session: Session, server: ModelServer, dialect: Dialect) -> int:
    """Send a request, recover if that is possible, and return how often the provider was asked."""
    asked = 0
    while True:
        asked += 1
        request = session.request()
        try:
            session.record(answered(request, server, dialect))
        except (openai.APIError, anthropic.APIError) as error:
            if not session.recover(error):
                raise
        else:
            return asked


def with_history(engine: Any, answer: Callable[..., Any], dialect: Dialect = "openai") -> Session:
    session = Session.open("talk", engine=engine, store=":memory:", config={}, model="any", dialect=dialect)
    for n in range(8):
        session.add({"role": "user", "content": f"Question {n}: " + "what is in this part of the yard? " * 20})
        session.request()
        session.record(answer(f"Answer {n}: " + "containers and cranes. " * 20))
    session.add({"role": "user", "content": "And now?"})
    return session


@pytest.mark.parametrize("wording", sorted(WORDINGS))
def test_the_wordings_of_providers_lead_to_one_compaction_and_one_retry(
    wording: str, answer: Callable[..., Any]
) -> None:
    dialect: Dialect = "anthropic" if wording.startswith("anthropic") else "openai"
    engine = RecordingEngine()
    with (
        ModelServer(["Fine."], window=1_500, wording=wording) as server,
        with_history(engine, answer, dialect) as session,
    ):
        assert send(session, server, dialect) == 2
        assert engine.methods().count("compress") == 1
        assert session.window[-2:] == [
            {"role": "user", "content": "And now?"},
            {"role": "assistant", "content": "Fine." if dialect == "openai" else [{"type": "text", "text": "Fine."}]},
        ]
        assert session.done


def test_the_window_is_corrected_when_the_answer_names_it(answer: Callable[..., Any]) -> None:
    engine = RecordingEngine(context_length=500_000)
    told: list[Any] = []
    with ModelServer(["Fine."], window=1_500) as server:
        session = with_history(engine, answer)
        session._conversation.sink = told.append
        assert session.context_length == 500_000
        send(session, server, "openai")
        assert session.context_length == 1_500
        _, call = [call for call in engine.calls if call.method == "update_model"]
        assert call.args == ("any", 1_500)
        (event,) = [event for event in told if isinstance(event, WindowCorrected)]
        assert (event.before, event.after) == (500_000, 1_500)
        session.close()


def test_one_retry_and_no_more(answer: Callable[..., Any]) -> None:
    """A provider that finds every input too long is asked twice, not for ever."""
    engine = RecordingEngine()
    with ModelServer() as server, with_history(engine, answer) as session:
        server.fail(Failure.CONTEXT_TOO_LONG, times=100)
        with pytest.raises(openai.BadRequestError):
            send(session, server, "openai")
        assert len(server.requests) == 2
        assert engine.methods().count("compress") == 1
        server.heal()
        session.add({"role": "user", "content": "Try again."})
        send(session, server, "openai")
        assert session.done


def test_after_an_answer_the_next_overflow_is_recovered_again(answer: Callable[..., Any]) -> None:
    engine = RecordingEngine()
    with ModelServer(["One.", "Two."]) as server, with_history(engine, answer) as session:
        for text in ("First?", "Second?"):
            server.fail(Failure.CONTEXT_TOO_LONG)
            session.add({"role": "user", "content": text})
            assert send(session, server, "openai") == 2
        assert engine.methods().count("compress") == 2


@pytest.mark.parametrize(
    "failure",
    [
        Failure.OUTPUT_LIMIT,
        Failure.RATE_LIMITED,
        Failure.BAD_KEY,
        Failure.NO_QUOTA,
        Failure.SERVER_ERROR,
        Failure.OVERLOADED,
        Failure.CONTENT_FILTER,
    ],
)
def test_other_errors_fold_nothing(failure: Failure, answer: Callable[..., Any]) -> None:
    engine = RecordingEngine()
    with ModelServer() as server, with_history(engine, answer) as session:
        server.fail(failure, times=5)
        window = session.window
        with pytest.raises(openai.APIError):
            send(session, server, "openai")
        assert "compress" not in engine.methods()
        assert session.window == window


def test_an_error_that_is_none_of_a_provider_is_no_overflow(answer: Callable[..., Any]) -> None:
    with with_history(RecordingEngine(), answer) as session:
        session.request()
        assert not session.recover(RuntimeError("the disk is too long"))
        assert not session.recover(KeyboardInterrupt())


class Stubborn(RecordingEngine):
    """An engine that folds nothing."""

    def compress(self, messages: Any, *args: Any, **options: Any) -> Any:
        self._note("compress")
        return messages


def test_a_fold_that_brings_nothing_is_no_recovery() -> None:
    engine = Stubborn()
    with Session.open("talk", engine=engine, store=":memory:", config={}, model="any") as session:
        session.add({"role": "user", "content": "What is in this part of the yard? " * 100})  # nobody can fold it
        session.request()
        assert not session.recover(Exception("prompt is too long: 210000 tokens > 200000 maximum"))
        assert engine.methods().count("compress") == 1


def test_the_built_in_engine_recovers_where_another_folds_nothing(answer: Callable[..., Any]) -> None:
    with with_history(Stubborn(), answer) as session:
        before = len(session.request()["messages"])
        assert session.recover(Exception("prompt is too long: 210000 tokens > 200000 maximum"))
        assert len(session.request()["messages"]) < before


def test_both_built_in_engines_recover_below_the_corrected_window(answer: Callable[..., Any]) -> None:
    for engine in ("compressor", "lcm"):
        with ModelServer(["Fine."], window=3_000) as server, with_history(engine, answer) as session:
            for n in range(30):
                session.add({"role": "user", "content": f"More {n}: " + "words and words. " * 20})
                session.record(answer(f"Answer {n}. " + "some more words. " * 20))
            session.add({"role": "user", "content": "And at the end?"})
            assert send(session, server, "openai") == 2
            assert session.usage().compactions == 1
