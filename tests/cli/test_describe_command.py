"""`leporello describe`: what an id stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello


def test_a_message_names_its_node_and_what_stands_around_it(leporello: Leporello, folded: Path) -> None:
    found = leporello("describe", "m13", "--store", folded, "--json").json
    assert (found["kind"], found["role"], found["conversation"], found["seq"]) == ("message", "user", "harbour", 13)
    assert [near["id"] for near in found["around"]] == ["m11", "m12", "m14", "m15"]
    shown = leporello("describe", "m13", "--store", folded)
    assert "conversation harbour, seq 13" in shown.out
    assert "Please look at src/harbour/part_04.py. Ticket PORT-2291" in shown.out
    node = leporello("describe", found["node"], "--store", folded, "--json").json
    assert node["covers"]["first_seq"] <= 13 <= node["covers"]["last_seq"]


def test_a_node_shows_what_it_covers_and_its_summary(leporello: Leporello, folded: Path) -> None:
    found = leporello("describe", "n1", "--store", folded, "--json").json
    shown = leporello("describe", "n1", "--store", folded)
    assert shown.code == 0
    assert f"{found['covers']['messages']} messages, seq {found['covers']['first_seq']} to" in shown.out
    assert found["summary"].splitlines()[0] in shown.out


def test_a_file_has_a_story(leporello: Leporello, folded: Path) -> None:
    found = leporello("describe", "file:src/harbour/part_04.py", "--store", folded, "--json").json
    assert (found["kind"], found["conversation"]) == ("file", "harbour")
    assert ("read", "m14") in [(event["what"], event["message"]) for event in found["story"]]
    shown = leporello("describe", "file:src/harbour/part_04.py", "--store", folded)
    assert "read  (m14, in n" in shown.out


def test_a_file_of_a_conversation_that_was_only_stored_has_a_story_too(leporello: Leporello, folded: Path) -> None:
    function = {"name": "write_file", "arguments": '{"path": "src/yard/gate.py", "content": "x = 1"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    store = open_store(folded)
    store.append("yard", [{"role": "user", "content": "write it"}, {"role": "assistant", "tool_calls": [call]}])
    store.append("yard", [{"role": "tool", "tool_call_id": "call_1", "content": "written"}])
    store.close()
    found = leporello("describe", "file:src/yard/gate.py", "--store", folded, "--json").json
    assert (found["kind"], found["conversation"]) == ("file", "yard")


def test_a_file_is_told_of_the_conversation_that_is_named(leporello: Leporello, folded: Path) -> None:
    store = open_store(folded)
    store.append("yard", [{"role": "user", "content": "hello"}])
    store.close()
    done = leporello("describe", "file:src/harbour/part_04.py", "--conversation", "yard", "--store", folded)
    assert done.code == 2
    assert "nothing is known about" in done.err


def test_what_is_not_there_is_exit_code_1(leporello: Leporello, folded: Path) -> None:
    for name in ("m999", "n999", "file:nobody/was/here.py", "nonsense", "file:", ""):
        done = leporello("describe", name, "--store", folded)
        assert (done.code, done.out) == (1, ""), name
        assert f"`leporello grep WORDS --store {folded}` finds ids" in done.err
