"""Redacted text and messages are types of their own: made by the redactor alone, and derived as a whole."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.redact import (
    WITHHELD,
    Redacted,
    joined,
    logger,
    redact,
    redact_message,
    redact_messages,
    redact_part,
    redact_value,
    secrets,
)
from leporello.testing.secrets import CONTEXTS, FORMS, SHAPES, leaks, pieces, planted
from leporello.testing.strategies import valid_conversations

if TYPE_CHECKING:
    from leporello.messages import Message

SOURCE = Path(__file__).parents[2] / "src" / "leporello"
TOKEN = SHAPES["github classic"](Random(1))


class TestText:
    """`Redacted` text."""

    def test_no_plain_string_becomes_it(self) -> None:
        with pytest.raises(TypeError):
            Redacted("anything")  # type: ignore[call-arg]

    def test_a_copy_is_plain_and_must_be_redacted_again(self) -> None:
        text = redact("PASSWORD=hunter22")
        unpickled = pickle.loads(pickle.dumps(text))  # noqa: S301 - made here
        for again in (copy.deepcopy(text), unpickled, text[:5], f"{text}"):
            assert not isinstance(again, Redacted)
        assert type(redact(text)) is type(joined(" ", [text, text])) is Redacted

    @pytest.mark.slow
    def test_a_type_checker_refuses_what_was_not_redacted(self, tmp_path: Path) -> None:
        mistakes = tmp_path / "mistakes.py"
        mistakes.write_text(
            "from leporello.redact import Redacted, redact, redact_messages\n"
            "from leporello.summary import SummaryRequest\n"
            "from leporello.summary.artifacts import collect\n"
            "from leporello.summary.digest import digest\n"
            'said = [{"role": "user", "content": "hello"}]\n'
            "clean = redact_messages(said)\n"
            'SummaryRequest(messages=clean, budget_tokens=9, focus=redact("x"))\n'
            "SummaryRequest(messages=said, budget_tokens=9)\n"
            'SummaryRequest(messages=clean, budget_tokens=9, focus="x")\n'
            'SummaryRequest(messages=clean, budget_tokens=9, previous=redact("x")[:1])\n'
            "collect(said)\n"
            "digest(said)\n"
            'Redacted("x")\n'
        )
        options = ("--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"))
        checked = subprocess.run(
            [sys.executable, "-m", "mypy", *options, str(mistakes)], capture_output=True, text=True, check=False
        )
        found = {
            int(line.split(":")[1]) for line in checked.stdout.splitlines() if "mistakes.py" in line and "error" in line
        }
        assert found == {8, 9, 10, 11, 12, 13}, checked.stdout

    def test_only_the_redactor_says_that_something_is_clean(self) -> None:
        says_so = {
            path.relative_to(SOURCE).parts[0]
            for path in SOURCE.rglob("*.py")
            if "RedactedMessage(" in (text := path.read_text("utf-8")) or "import Redacted, clean" in text
        }
        assert says_so == {"redact"}


class TestParts:
    """A part of a text is redacted with what surrounds it in view."""

    @pytest.mark.slow
    @pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
    def test_no_cut_leaves_a_piece(self, form: Any) -> None:
        secret = form.make(Random(form.name))
        text = f"settings\n{form.phrase.format(secret)}\nand the rest of it"
        known, found = pieces([secret]), secrets(text)
        for cut in range(len(text)):
            assert not [
                *leaks(known, redact_part(text, 0, cut)),
                *leaks(known, redact_part(text, cut, len(text), found)),
            ]

    def test_a_cut_before_redacting_leaves_one(self) -> None:
        text, known = f"use {TOKEN} now", pieces([TOKEN])
        assert any(any(leaks(known, redact(text[:cut]))) for cut in range(len(text)))

    @given(st.text(max_size=80), st.integers(0, 90), st.integers(0, 90))
    def test_what_holds_no_secret_is_cut_as_it_is(self, text: str, start: int, stop: int) -> None:
        if not secrets(text):
            assert redact_part(text, start, min(stop, len(text))) == text[start : min(stop, len(text))]

    def test_a_text_that_cannot_be_searched_is_withheld(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("leporello.redact.redactor._LONGEST_TEXT", 10)
        assert redact_part(f"use {TOKEN} now", 0, 8) == WITHHELD


class TestMessages:
    """Views of messages."""

    @pytest.mark.slow
    @pytest.mark.parametrize("context", CONTEXTS)
    def test_every_form_is_taken_out_together(self, context: str) -> None:
        plants = [planted(form, context, n, Random(f"{n} {context}")) for n, form in enumerate(FORMS)]
        views = redact_messages([message for plant in plants for message in plant.messages])
        known = pieces(plant.secret for plant in plants)
        assert len(views) == sum(len(plant.messages) for plant in plants)
        assert not set(leaks(known, json.dumps(views, ensure_ascii=False)))
        assert any(leaks(known, json.dumps([plant.messages for plant in plants], ensure_ascii=False)))

    @pytest.mark.slow
    @settings(max_examples=60, deadline=None)
    @given(valid_conversations())
    def test_a_conversation_without_secrets_stays_as_it_is(self, messages: list[Message]) -> None:
        read = {"role", "name", "timestamp", "tool_call_id", "content", "tool_calls"}
        for message, view in zip(messages, redact_messages(messages), strict=True):
            if isinstance(message.get("content"), str | None):
                assert view == {key: value for key, value in message.items() if key in read}

    def test_together_and_one_by_one_are_the_same(self) -> None:
        messages = [m for n, form in enumerate(FORMS) for m in planted(form, "json", n, Random(n)).messages]
        assert redact_messages(messages) == [redact_message(message) for message in messages]

    def test_what_runs_from_one_message_into_the_next_is_still_told_apart(self) -> None:
        lines = "\n".join("A1b2C3d4" * 8 for _ in range(3))
        begun = {"role": "user", "content": f"-----BEGIN RSA PRIVATE KEY-----\n{lines}"}
        ended = {"role": "user", "content": f"{lines}\n-----END RSA PRIVATE KEY-----"}
        views = redact_messages([begun, {"role": "assistant", "content": "and then?"}, ended])
        assert [view["content"] for view in views] == ["[REDACTED:private-key]", "and then?", "[REDACTED:private-key]"]

    def test_blocks_and_arguments_that_are_no_text_are_searched_by_their_keys(self) -> None:
        block = {"type": "tool_use", "id": "a", "name": "login", "input": {"password": "sunshine", "user": "bob"}}
        call = {"id": "b", "function": {"name": "login", "arguments": {"password": "sunshine"}}}
        view = redact_message({"role": "assistant", "content": [block], "tool_calls": [call]})
        assert "sunshine" not in str(view)
        assert "bob" in str(view)

    def test_what_is_not_read_is_not_there(self) -> None:
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA" + "B" * 400}}
        text = {"type": "text", "text": "see it"}
        message = {"role": "user", "content": [image, text], "_note": TOKEN, "reasoning_content": TOKEN}
        assert redact_message(message) == {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:"}}, text],
        }

    @pytest.mark.parametrize("odd", [None, 7, "text", [], {"content": 3}, {"role": None, "tool_calls": [None]}])
    def test_what_is_no_message_has_its_place(self, odd: Any) -> None:
        views = redact_messages([odd, {"role": "user", "content": "hello"}])
        assert views[1] == {"role": "user", "content": "hello"}

    def test_the_message_is_not_changed(self) -> None:
        message = {"role": "user", "name": TOKEN, "content": f"use {TOKEN}"}
        before = copy.deepcopy(message)
        assert TOKEN not in str(redact_message(message))
        assert message == before


class TestLogs:
    """Log lines."""

    def test_lines_arguments_and_tracebacks_hold_no_secret(self, caplog: pytest.LogCaptureFixture) -> None:
        log = logger("leporello.test")
        try:
            int(f"cannot use {TOKEN}")
        except ValueError:
            log.exception("it failed with %s", TOKEN)
        text = "\n".join(logging.Formatter().format(record) for record in caplog.records)
        assert TOKEN not in text
        assert "it failed with [REDACTED:github-token]" in text
        assert "'cannot use [REDACTED:github-token]'" in text

    def test_another_logger_would_tell(self, caplog: pytest.LogCaptureFixture) -> None:
        logging.getLogger("elsewhere").warning("it failed with %s", TOKEN)
        assert TOKEN in caplog.text

    def test_a_line_that_cannot_be_written_is_withheld(self, caplog: pytest.LogCaptureFixture) -> None:
        logger("leporello.test").warning("%d of " + TOKEN, "no number")
        assert caplog.messages == [WITHHELD]


def exact_values(rng: Random) -> list[str]:
    """Return paths, hashes, uuids and identifiers as programs make them."""
    words = (
        "berth",
        "yard",
        "crane",
        "token",
        "auth",
        "secret",
        "key",
        "session",
        "password",
        "api",
        "index",
        "config",
    )

    def name(joint: str) -> str:
        return joint.join(rng.choices(words, k=rng.randrange(2, 5)))

    def digits(length: int) -> str:
        return "".join(rng.choices("0123456789abcdef", k=length))

    return [
        f"src/{name('/')}/{name('_')}.py",
        f"/home/bob/.cache/{name('-')}/{digits(12)}/{name('_')}.json:{rng.randrange(999)}",
        f"node_modules/@{name('-')}/dist/{name('.')}.{digits(8)}.js",
        digits(40),
        digits(64),
        digits(7),
        f"sha256:{digits(64)}",
        f"{digits(8)}-{digits(4)}-4{digits(3)}-a{digits(3)}-{digits(12)}",
        f"{name('_')}_{rng.randrange(10**6)}",
        f"{name('-')}-{digits(10)}-{digits(5)}",
        "".join(part.title() for part in name(" ").split()),
        f"toolu_{digits(24)}",
        f"call_{digits(24)}",
        f"msg_01{digits(22)}",
        f"PORT-{rng.randrange(9999)}",
        f"max_{name('_')}_tokens={rng.randrange(9999)}",
    ]


def changed(values: list[str]) -> list[str]:
    """Return the values that a redactor changes where they stand: in a sentence, a listing, JSON and a call."""
    places = (
        "see {} there",
        "{}\n",
        '{{"path": "{}", "line": 3}}',
        "file: {}",
        "id={}&page=2",
        "    - {}",
        "({})",
        "`{}`",
    )
    return [value for value in values for place in places if value not in redact(place.format(value))]


@pytest.mark.slow
def test_exact_values_are_kept() -> None:
    rng = Random(7)
    values = [value for _ in range(400) for value in exact_values(rng)]
    assert len(changed(values)) <= len(values) * 8 // 1_000


def test_that_check_notices_a_redactor_that_takes_too_much() -> None:
    assert changed([f"ghp_{'a1B2' * 9}"])


def test_a_structure_is_redacted_by_its_keys() -> None:
    assert redact_value({"password": "sunshine"}) == {"password": "[REDACTED:password]"}
