"""Probes really call the engine's tools, at most two of them, and an echo of the question is no answer."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from leporello import ContextCompressor
from leporello.messages import text_of
from leporello.proof import probes
from leporello.proof.exact_values import content_words
from leporello.proof.probes import Probe, Probed, ask_all, probes_of

if TYPE_CHECKING:
    import pytest

    from leporello.messages import Message

VALUE = Probe(kind="value", text="HRB-1042", cue="tide table late", at=0)
RULE = Probe(kind="rule", text="Never rename load_table.", cue="teams other", at=0)


class Library(ContextCompressor):
    """An engine with a search that knows one message, and a tool that opens it."""

    def __init__(self, snippet: str, whole: str, *, echo: bool = False) -> None:
        super().__init__(16_000)
        self.snippet, self.whole, self.echo = snippet, whole, echo
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        query = {"type": "object", "properties": {"query": {"type": "string"}}}
        opened = {"type": "object", "properties": {"node_id": {}, "max_tokens": {"maximum": 900}}}
        return [
            {"type": "function", "function": {"name": "book_search", "parameters": query}},
            {"name": "book_expand", "parameters": opened},
        ]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        self.calls.append((name, args))
        if name == "book_expand":
            return json.dumps({"text": self.whole})
        return json.dumps(
            {"query": args["query"] if self.echo else "", "hits": [{"node_id": "n7", "snippet": self.snippet}]}
        )


def asked(engine: ContextCompressor, probe: Probe = VALUE, window: str = "nothing") -> Probed:
    (found,) = ask_all([probe], engine, [{"role": "user", "content": window}], upto=1)
    return found


def test_what_stands_in_the_window_is_retained_without_a_call() -> None:
    engine = Library("", "")
    assert asked(engine, window="see HRB-1042").outcome == "retained"
    assert asked(engine, RULE, window="never  rename\nload_table.").outcome == "retained"
    assert engine.calls == []


def test_one_call_is_enough_when_the_hit_shows_it() -> None:
    engine = Library("ticket HRB-1042 is open", "")
    assert asked(engine).outcome == "by_cue"
    assert [name for name, _ in engine.calls] == ["book_search", "book_search"]


def test_the_second_call_opens_the_best_hit_with_its_largest_budget() -> None:
    engine = Library("a hit", "the ticket is HRB-1042")
    assert asked(engine).outcome == "by_cue"
    assert engine.calls[:2] == [
        ("book_search", {"query": VALUE.cue}),
        ("book_expand", {"node_id": "n7", "max_tokens": 900}),
    ]
    assert len(engine.calls) == 4  # two by cue, two by value


def test_an_echo_of_the_question_is_no_answer() -> None:
    assert asked(Library("a hit", "nothing", echo=True)).outcome == "lost"


def test_without_tools_what_is_not_in_the_window_is_lost() -> None:
    assert asked(ContextCompressor(16_000)).outcome == "lost"


def test_a_part_of_a_word_is_not_the_value() -> None:
    assert asked(Library("HRB-10429", "XHRB-1042")).outcome == "lost"


def line(number: int) -> str:
    return f'{{"reservation": "{number}XGCCM", "passenger": "Amelia Davis", "amount": {5000 + number}}}'


RESULTS: list[Message] = [
    {"role": "tool", "tool_call_id": f"c{number}", "content": line(number)} for number in range(10, 20)
]
CONVERSATION: list[Message] = [
    {"role": "user", "content": "Look at all of them."},
    *RESULTS,
    {
        "role": "user",
        "content": "\n".join(["Elderberries far away.", *"abcdef", "Never rename the table.", "Marzipan and thyme."]),
    },
]

GLUED: list[Message] = [{"role": "user", "content": "HRB-1042 waits in hrbqueue, says Lisbon."}]


def wrong_cues(conversation: list[Message]) -> list[str]:
    """Return words of cues that are no words of the conversation, share a part with the value, or stand far off."""
    words = {word for message in conversation for word in re.findall(r"[^\W_]+", text_of(message).lower())}
    return [
        word
        for probe in probes_of(conversation)
        for word in probe.cue.split()
        if word not in words or word == "elderberries" or any(part in word for part in parts(probe.text))
    ]


def parts(value: str) -> list[str]:
    return re.findall(r"[^\W_]{3,}", value.lower())


def test_a_cue_has_whole_words_that_stood_near_and_none_of_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = [*CONVERSATION, *GLUED]
    assert wrong_cues(conversation) == []
    cues = {probe.text: probe.cue for probe in probes_of(conversation)}
    assert cues["5012"].split()[0] == "12xgccm"  # the rarest word of its line
    assert cues["Never rename the table."] == "marzipan thyme"

    # Planted: words in pieces, words from anywhere, words of the value itself.
    for name, defect in {
        "whole_words": content_words,
        "_NEAR": 100,
        "_PART": re.compile("(?!)"),
    }.items():
        with monkeypatch.context() as planted:
            planted.setattr(probes, name, defect)
            assert wrong_cues(conversation), name
