"""What the model asks with is no answer to it: the waiting call and its question are not found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leporello.lcm.tools import toolbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello import LCMEngine
    from leporello.messages import Message

WORD = "zanzibar"
OLD: list[Message] = [
    {"role": "user", "content": f"The code word is {WORD}, remember it."},
    {"role": "assistant", "content": "Noted."},
]
QUESTION: Message = {"role": "user", "content": f"What did I say about {WORD}?"}


def calls(*names: str, number: int = 0) -> Message:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{number}_{n}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps({"query": WORD})},
            }
            for n, name in enumerate(names)
        ],
    }


def result(text: str, *, number: int = 0, call: int = 0) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{number}_{call}", "content": text}


def found(engine: LCMEngine, messages: list[Message], **arguments: Any) -> list[str]:
    answer = json.loads(engine.handle_tool_call("lcm_grep", {"query": WORD, **arguments}, messages=messages))
    return [hit["id"] for hit in answer["results"]]


def check(engine: LCMEngine, messages: list[Message], **arguments: Any) -> None:
    """Nothing of the call and its question is found, and everything else is."""
    hits = found(engine, messages, **arguments)
    ids = {row.id: row.message for row in engine.store.messages(engine.conversation)}
    own = [ids[hit] for hit in hits]
    assert OLD[0] in own
    assert QUESTION not in own
    assert not any(message.get("tool_calls") for message in own)


TURNS: dict[str, list[Message]] = {
    "one call": [calls("lcm_grep")],
    "beside another tool that was answered": [calls("terminal", "lcm_grep"), result("on disk")],
    "the second search of a turn": [
        calls("lcm_grep"),
        result(f'{{"results": [{{"snippet": "{WORD}"}}]}}'),
        calls("lcm_grep", number=1),
    ],
}


@pytest.mark.parametrize("options", [{}, {"sort": "recency"}, {"regex": True}], ids=["ranked", "recent", "regex"])
@pytest.mark.parametrize("turn", TURNS)
def test_a_search_does_not_find_itself(
    make_engine: Callable[..., LCMEngine], turn: str, options: dict[str, Any]
) -> None:
    check(make_engine(), [*OLD, QUESTION, *TURNS[turn]], **options)


def test_what_other_tools_found_in_the_same_turn_is_found(make_engine: Callable[..., LCMEngine]) -> None:
    engine = make_engine()
    output = result(f"notes.txt: {WORD}")
    messages = [*OLD, QUESTION, calls("terminal"), output, calls("lcm_grep", number=1)]
    hits = found(engine, messages)
    rows = engine.store.get(hits)
    assert output in [rows[hit].message for hit in hits]


def test_without_a_call_that_waits_everything_is_found(make_engine: Callable[..., LCMEngine]) -> None:
    engine = make_engine()
    assert len(found(engine, [*OLD, QUESTION])) == 2
    answered: list[Message] = [
        *OLD,
        QUESTION,
        calls("lcm_grep"),
        result("nothing"),
        {"role": "assistant", "content": "Nothing."},
    ]
    assert len(found(engine, answered)) == 3


def test_the_pages_of_a_search_fit_together(make_engine: Callable[..., LCMEngine]) -> None:
    """The next page is asked for by another call, perhaps in another turn: nothing comes twice or is left out."""
    engine = make_engine()
    told: list[Message] = []
    for n in range(30):
        told += [{"role": "user", "content": f"{WORD} {n}"}, {"role": "assistant", "content": f"Noted {n}."}]
    messages = [*told, QUESTION, calls("lcm_grep")]
    cursor, ids = None, []
    for number in range(1, 20):
        arguments = {"query": WORD, "limit": 4, "sort": "recency", **({"cursor": cursor} if cursor else {})}
        answer = json.loads(engine.handle_tool_call("lcm_grep", arguments, messages=messages))
        ids += [hit["id"] for hit in answer["results"]]
        cursor = answer["cursor"]
        if cursor is None:
            break
        reply: Message = {"role": "assistant", "content": "There is more."}
        more: Message = {"role": "user", "content": f"More of {WORD}, please."}
        messages = [*messages, result("a page", number=number - 1), reply, more, calls("lcm_grep", number=number)]
    rows = engine.store.get(ids)
    assert [rows[hit].message for hit in ids] == [message for message in reversed(told) if message["role"] == "user"]


def test_the_check_catches_a_search_that_finds_itself(
    make_engine: Callable[..., LCMEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolbox.LCMTools, "_asking", lambda _: ())
    with pytest.raises(AssertionError):
        check(make_engine(), [*OLD, QUESTION, *TURNS["one call"]])
