"""`leporello expand`: the originals come back, word for word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello import LCMEngine
from leporello.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello

    from leporello.messages import Message


def originals(leporello: Leporello, store: Path, name: str, *options: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = leporello("expand", name, "--store", store, "--json", *options).json["messages"]
    return [entry["message"] for entry in entries]


def test_a_node_unfolds_to_exactly_its_messages(leporello: Leporello, folded: Path, talk: list[Message]) -> None:
    covers = leporello("describe", "n1", "--store", folded, "--json").json["covers"]
    said = talk[covers["first_seq"] - 1 : covers["last_seq"]]
    assert originals(leporello, folded, "n1", "--max-tokens", "50000") == said


def test_all_nodes_and_the_window_together_are_the_whole_conversation(
    leporello: Leporello, folded: Path, talk: list[Message]
) -> None:
    tops = leporello("sessions", "show", "harbour", "--store", folded, "--json").json["window_nodes"]
    unfolded = [m for top in tops for m in originals(leporello, folded, top, "--max-tokens", "100000")]
    assert 0 < len(unfolded) < 90
    assert unfolded == talk[: len(unfolded)]


def test_a_budget_cuts_visibly_and_the_cursor_goes_on(leporello: Leporello, folded: Path) -> None:
    whole = originals(leporello, folded, "n1", "--max-tokens", "50000")
    done = leporello("expand", "n1", "--max-tokens", "200", "--store", folded)
    assert f"more: leporello expand n1 --max-tokens 200 --store {folded} --cursor " in done.err
    text, cursor = "", ["--max-tokens", "200"]
    while True:
        answer = leporello("expand", "n1", "--store", folded, "--json", *cursor).json
        text += "".join(entry.get("text") or str(entry["message"]["content"]) for entry in answer["messages"])
        if answer["complete"]:
            break
        cursor = ["--max-tokens", "200", "--cursor", answer["cursor"]]
    assert all(message["content"] in text for message in whole if message["role"] == "tool")


def test_a_message_is_shown_to_people(leporello: Leporello, folded: Path, talk: list[Message]) -> None:
    done = leporello("expand", "m13", "--store", folded)
    assert done.code == 0
    assert talk[12]["content"] in done.out
    assert "calls read_file with" in leporello("expand", "m14", "--store", folded).out


def test_a_node_of_a_later_conversation_unfolds_to_its_own_messages(
    leporello: Leporello, folded: Path, talk: list[Message]
) -> None:
    engine = LCMEngine(16_000, store=folded, config={"leaf_tokens": 2_000})
    engine.on_session_start("yard")
    said: list[Message] = [{**message, "content": f"yard {message.get('content') or ''}"} for message in talk]
    engine.compress(said)
    engine.close()
    store = open_store(folded)
    node = store.nodes("yard")[0].id
    store.close()
    found = originals(leporello, folded, node, "--max-tokens", "50000")
    assert found
    assert all(str(message["content"]).startswith("yard ") for message in found)


def test_secrets_are_hidden_unless_the_configuration_says_otherwise(
    leporello: Leporello, folded: Path, tmp_path: Path
) -> None:
    secret = "sk-proj-" + "Ab3dEf6hIj" * 4
    store = open_store(folded)
    (name,) = store.append("yard", [{"role": "user", "content": f"the key is {secret}"}])
    store.close()
    assert secret not in leporello("expand", name, "--store", folded).out
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text("lcm:\n  redact: false\n")
    assert secret in leporello("expand", name, "--store", folded).out


def test_what_is_not_there_or_wrong(leporello: Leporello, folded: Path) -> None:
    assert leporello("expand", "n999", "--store", folded).code == 1
    assert leporello("expand", "n1", "--max-tokens", "1", "--store", folded).code == 2
    done = leporello("expand", "n1", "--cursor", "m90:0", "--store", folded)
    assert (done.code, "cursor belongs to another" in done.err) == (2, True)
