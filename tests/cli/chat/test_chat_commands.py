"""Commands in a real terminal: folding, engines, models, conversations, and those of plugins."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from leporello.messages import text_of

if TYPE_CHECKING:
    from tests.fixtures.chat import Place

pytestmark = pytest.mark.slow

PLUGIN = """
def register(ctx):
    ctx.register_command("weather", lambda city: f"It rains in {city}.", description="Tells the weather.")
    ctx.register_command("usage", lambda _: "mine", description="Takes a name that is taken.")
    ctx.register_command("broken", lambda _: 1 / 0)
"""


ENGINE = """
from agent.context_engine import ContextEngine

class Engine(ContextEngine):
    name = "hopeful"

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens=None):
        return False

    def compress(self, messages, current_tokens=None, focus_topic=None):
        return list(messages)

def register(ctx):
    engine = Engine()
    ctx.register_context_engine(engine)
    ctx.register_command("hopes", lambda _: f"the engine in use has seen usage: {engine.last_prompt_tokens > 0}")
"""


COUNTS = """
    with open(__file__ + '.runs', 'a') as file:
        file.write('run ')
    ctx.register_hook('x', print)
"""


def test_undo_and_retry(place: Place) -> None:
    place.server.script("The answer is 41.", "The answer is 42.", "Nice weather.")
    with place.chat() as chat:
        chat.say("What is the answer?")
        chat.wait_for("41.")
        chat.say("/retry")
        chat.wait_for("42.")
        assert [text_of(one) for one in place.sent()[1:]] == ["What is the answer?"]
        chat.say("/undo")
        chat.wait_for("taken back: What is the answer?")
        chat.say("/undo")
        chat.wait_for("nothing to take back")
        chat.say("How is the weather?")
        chat.wait_for("Nice weather.")
    assert [text_of(one) for one in place.sent()[1:]] == ["How is the weather?"]


def test_new_ends_the_conversation_and_begins_another(place: Place) -> None:
    with place.chat("--session", "first") as chat:
        chat.say("Remember me")
        chat.wait_until(lambda: chat.text().count("Remember me") == 2, "the echo")
        chat.say("/new")
        chat.wait_for("first has ended")
        chat.say("Who are you?")
        chat.wait_until(lambda: chat.text().count("Who are you?") == 2, "the echo")
        chat.say("/sessions")
        chat.wait_for("messages  Remember me")
        chat.wait_for("Enter chooses")
        chat.type("q")
        chat.say("/new")
        chat.wait_for("(/resume 2")
        chat.say("/new")
        chat.wait_for("nothing was said in 2")
        chat.say("/sessions first")
        chat.wait_until(lambda: chat.text().count("Remember me") == 4, "where the first one was left")
        chat.say("Still there?")
        chat.wait_until(lambda: chat.text().count("Still there?") == 2, "the echo")
        chat.say("/exit")
        assert chat.exit_code() == 0
    assert [text_of(one) for one in place.sent(1)[1:]] == ["Who are you?"]
    assert [text_of(one) for one in place.sent()[1:]] == ["Remember me", "Remember me", "Still there?"]


def test_a_compaction_shows_its_reason_and_the_time_it_takes(place: Place) -> None:
    looked = threading.Event()

    def summarise(_request: object) -> str:
        assert looked.wait(60)
        return "## Goal\nTo count.\n"

    place.configure(context_length=16_000)
    place.remember("long", 20)
    with place.chat("--session", "long", "--no-tools") as chat:
        place.server.script(summarise)
        chat.say("/compress the details")
        chat.wait_for("tokens (asked for, with focus on the details) · 0 s")
        chat.wait_for("tokens (asked for, with focus on the details) · 1 s")
        looked.set()
        chat.wait_for("❖ folded: 41 →")
        chat.say("/usage")
        chat.wait_for("compactions 1")


def test_a_filling_window_is_folded_by_itself(place: Place) -> None:
    place.configure(context_length=16_000)
    place.remember("long", 40)
    with place.chat("--session", "long", "--no-tools") as chat:
        chat.say("What was the last part?")
        chat.wait_for("❖ folded: 82 →")
        chat.wait_until(lambda: chat.text().count("What was the last part?") == 2, "the echo")


def test_ctrl_c_leaves_a_compaction_that_takes_too_long(place: Place) -> None:
    let_go = threading.Event()

    def summarise(_request: object) -> str:
        let_go.wait(60)
        return "## Goal\nTo count.\n"

    place.configure(context_length=16_000)
    place.remember("long", 20)
    place.server.script(summarise)
    with place.chat("--session", "long", "--no-tools") as chat:
        chat.say("/compress")
        chat.wait_for("tokens (asked for) · 0 s")
        chat.type(chat.CTRL_C)
        chat.wait_for("interrupted")
        let_go.set()
        chat.say("/usage")
        chat.wait_for("compactions 0")
        place.server.script("## Goal\nTo count.\n")
        chat.say("/compress")
        chat.wait_for("❖ folded: 41 →")


def test_a_second_ctrl_c_does_not_wait_for_a_compaction_in_a_turn(place: Place) -> None:
    let_go = threading.Event()

    def summarise(_request: object) -> str:
        let_go.wait(60)
        return "## Goal\nTo count.\n"

    place.configure(context_length=16_000)
    place.remember("long", 40)
    place.server.script(summarise)
    with place.chat("--session", "long", "--no-tools") as chat:
        chat.say("What was the last part?")
        chat.wait_for("(the window is filling) · 0 s")
        chat.type(chat.CTRL_C)
        chat.wait_for("stopping; Ctrl-C again does not wait")
        chat.type(chat.CTRL_C)
        chat.wait_for("interrupted; the conversation goes on")
        let_go.set()
        chat.say("/usage")
        chat.wait_for("compactions 0")


def test_compress_with_nothing_to_fold_says_so(place: Place) -> None:
    with place.chat() as chat:
        chat.say("/compress")
        chat.wait_for("nothing was folded: there is nothing to compact yet")


def test_a_plugin_that_brings_the_engine_registers_once(place: Place) -> None:
    """Its command is the one of the engine in use, also after another engine was in between."""
    place.plugin("hope", ENGINE.rstrip() + COUNTS)
    place.configure(plugins={"enabled": ["hope"]}, context={"engine": "hopeful"})
    with place.chat() as chat:
        chat.say("hello")
        chat.wait_until(lambda: chat.text().count("hello") == 2, "the echo")
        assert (place.home / "plugins/hope/__init__.py.runs").read_text() == "run "
        assert chat.words().count("plugin 'hope' has a hook x") == 1
        chat.say("/engine")
        chat.wait_for("● hopeful")
        chat.say("/engine compressor")
        chat.wait_for("engine   compressor")
        chat.say("/engine hopeful")
        chat.wait_until(lambda: chat.text().count("engine   hopeful") == 2, "the engine again")
        chat.say("hello again")
        chat.wait_until(lambda: chat.text().count("hello again") == 2, "the echo")
        chat.say("/hopes")
        chat.wait_for("the engine in use has seen usage: True")


def test_an_engine_that_takes_precedence_is_named_at_the_start(place: Place) -> None:
    place.plugin("hope", ENGINE.replace('"hopeful"', '"lcm"'))
    place.configure(plugins={"enabled": ["hope"]}, context={"engine": "lcm"}, lcm={"context_threshold": 0.6})
    told = "engine 'lcm' is the one of plugin 'hope' in"
    ran = place.run("Hello")
    assert (ran.returncode, ran.stderr.count(told)) == (0, 1)
    with place.chat() as chat:
        chat.wait_until(chat.listens, "the prompt")
        assert chat.words().count(told) == 1


def test_a_raised_threshold_is_said_at_the_start(place: Place) -> None:
    model = ("--provider", "openai-codex", "--model", "gpt-5.5", "--base-url", place.server.openai_url)
    told = "gpt-5.5 on Codex has a window of 272K"
    ran = place.run(*model, "Hello")
    assert (ran.returncode, ran.stderr.count(told)) == (0, 1)
    with place.chat(*model) as chat:
        chat.say("Hello")
        chat.wait_until(lambda: chat.text().count("Hello") == 2, "the echo")
        assert chat.words().count(told) == 1


def test_a_provider_without_an_address_says_what_it_needs(place: Place) -> None:
    (place.home / "config.yaml").unlink(missing_ok=True)
    ran = place.run("--provider", "openai-codex", "--model", "gpt-5.5", "Hello")
    assert ran.returncode == 2
    assert "the address of the provider 'openai-codex' is not known here" in ran.stderr
    assert "--base-url" in ran.stderr
    assert "ChatGPT sign-in" in ran.stderr


def test_the_commands_of_an_engine_come_and_go_with_it(place: Place) -> None:
    place.plugin("context_engine/hopeful", ENGINE)
    with place.chat("--engine", "hopeful") as chat:
        chat.say("hello")
        chat.wait_until(lambda: chat.text().count("hello") == 2, "the echo")
        chat.say("/hopes")
        chat.wait_for("the engine in use has seen usage: True")
        chat.say("/engine compressor")
        chat.wait_for("engine   compressor")
        chat.say("/hopes")
        chat.wait_for("there is no command /hopes; /help shows them all.")


@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_commands_of_enabled_plugins_are_there_whichever_engine_is_chosen(place: Place, engine: str) -> None:
    place.plugin("sky", PLUGIN)
    place.configure(plugins={"enabled": ["sky"]})
    with place.chat("--engine", engine) as chat:
        chat.wait_for("/usage of the plugin 'sky' is left out")
        chat.say("/weather Seville")
        chat.wait_for("It rains in Seville.")
        chat.say("/broken")
        chat.wait_for("/broken of the plugin 'sky' failed: ZeroDivisionError")
        chat.say("/help")
        chat.wait_for("Tells the weather.")
        chat.say("/usage")
        chat.wait_for("altogether")


def test_engines_can_be_changed_and_the_conversation_stays(place: Place) -> None:
    with place.chat() as chat:
        chat.say("The code is 7731")
        chat.wait_until(lambda: chat.text().count("The code is 7731") == 2, "the echo")
        chat.say("/engine nonsense")
        chat.wait_for("plugin 'nonsense': it cannot be used as an engine")
        chat.say("/engine lcm")
        chat.wait_for("engine   lcm")
        chat.say("/engine")
        chat.wait_for("● lcm")
        chat.say("Do you remember?")
        chat.wait_until(lambda: chat.text().count("Do you remember?") == 2, "the echo")
    assert text_of(place.sent()[1]) == "The code is 7731"
    assert "lcm_grep" in json.dumps(place.server.requests[-1].tools)


def test_models_can_be_changed(place: Place) -> None:
    with place.chat() as chat:
        chat.say("/model gpt-5")
        chat.wait_for("model    gpt-5 (openai at")
        chat.say("Which are you?")
        chat.wait_until(lambda: chat.text().count("Which are you?") == 2, "the echo")
        chat.say("/model claude-sonnet-5 anthropic")
        chat.wait_for("there is no key for anthropic")
        chat.say("/model")
        chat.wait_until(lambda: chat.text().count("model    gpt-5 (openai at") == 2, "the model")
    assert place.server.requests[-1].model == "gpt-5"


def test_lines_that_are_no_commands(place: Place) -> None:
    with place.chat() as chat:
        chat.say("/compres the rest")
        chat.wait_for("there is no command /compres; did you mean /compress?")
        assert place.server.requests == []
        chat.say("/etc/hosts is a file")
        chat.wait_until(lambda: chat.text().count("/etc/hosts is a file") == 2, "the echo")
        chat.say(" /tmp is full")
        chat.wait_until(lambda: chat.text().count("/tmp is full") == 2, "the echo")
        chat.wait_until(chat.listens)
        chat.type(f"one{chat.ESCAPE}{chat.ENTER}two{chat.ENTER}")
        chat.wait_until(lambda: len(place.server.requests) == 3, "the request")
    assert text_of(place.sent()[-1]) == "one\ntwo"
