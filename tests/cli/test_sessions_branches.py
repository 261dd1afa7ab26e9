"""`leporello sessions` on a conversation that was forked: each branch is shown where it belongs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from leporello.cli import branches
from leporello.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello

    from leporello.messages import Message
    from leporello.store import BranchInfo, ConversationInfo, Store


def said(*texts: str) -> list[Message]:
    return [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]


@pytest.fixture
def forked(tmp_path: Path) -> Path:
    """A store with a conversation of four branches, of which the third is the head, and one that was never forked."""
    path = tmp_path / "leporello.db"
    store = open_store(path)
    ids = store.append("port", said("Which berth is free?", "Berth three.", "And which crane?", "Crane seven."))
    again = store.fork("port", before=ids[3])
    store.append("port", said("", "Crane eight, the other one is being repaired.")[1:], branch=again)
    store.fork("port", branch=again)
    store.append("port", said("Then take that one.", "It is booked.\x1b[31m"))
    store.fork("port", before=ids[0], branch=1, head=False)
    store.append("yard", said("Good morning!"))
    store.close()
    return path


def test_the_branches_are_shown_as_a_tree(leporello: Leporello, forked: Path) -> None:
    shown = leporello("sessions", "show", "port", "--last", "1", "--store", forked).out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert {"messages 6", "branches 4", "head 3"} <= set(lines)
    at = lines.index("branch parent behind messages newest message")
    assert lines[at + 1 : -1] == [
        "1 4 m4 assistant: Crane seven.",
        "└ 2 1 m3 4 m5 assistant: Crane eight, the other one is being repaired.",
        "└ 3 2 m5 6 head m7 assistant: It is booked.␛[31m",
        "1 branch on which nothing was said",
    ]
    assert lines[-1].startswith("m7 assistant: It is booked.")


def test_what_stands_under_a_branch_is_indented(leporello: Leporello, forked: Path) -> None:
    shown = leporello("sessions", "show", "port", "--store", forked).out.splitlines()
    assert [line.index("└") for line in shown if "└" in line] == [0, 2]


def test_programs_get_every_branch(leporello: Leporello, forked: Path) -> None:
    found = leporello("sessions", "show", "port", "--store", forked, "--json").json
    assert found["head"] == 3
    assert [
        (each["id"], each["parent"], each["fork"], each["tip"], each["messages"]) for each in found["branches"]
    ] == [
        (1, None, None, "m4", 4),
        (2, 1, "m3", "m5", 4),
        (3, 2, "m5", "m7", 6),
        (4, 1, None, None, 0),
    ]
    assert [each["head"] for each in found["branches"]] == [False, False, True, False]
    assert [each["text"] for each in found["branches"]][:2] == [
        "Crane seven.",
        "Crane eight, the other one is being repaired.",
    ]
    assert (found["branches"][3]["role"], found["branches"][3]["text"]) == (None, None)


def test_a_conversation_that_was_never_forked_says_nothing_of_branches(leporello: Leporello, forked: Path) -> None:
    shown = leporello("sessions", "show", "yard", "--store", forked).out
    assert not {line.split()[0] for line in shown.splitlines()} & {"branch", "branches", "head"}
    found = leporello("sessions", "show", "yard", "--store", forked, "--json").json
    assert [(each["id"], each["head"], each["tip"]) for each in found["branches"]] == [(1, True, "m8")]


def test_the_list_counts_branches_where_there_are_any(leporello: Leporello, forked: Path) -> None:
    found = leporello("sessions", "list", "--store", forked, "--json").json
    assert [(each["id"], each["branches"], each["head"]) for each in found] == [("yard", 1, 1), ("port", 4, 3)]
    heads, *rows = leporello("sessions", "list", "--store", forked).out.splitlines()
    assert heads.split()[:5] == ["conversation", "title", "messages", "nodes", "branches"]
    assert [" ".join(row.split()).rpartition(" 20")[0] for row in rows] == [
        "yard Good morning! 1 0 1",
        "port Which berth is free? 6 0 4",
    ]
    leporello("sessions", "delete", "port", "--yes", "--store", forked)
    assert "branches" not in leporello("sessions", "list", "--store", forked).out


def test_branches_that_are_very_deep_leave_room_for_their_words(leporello: Leporello, forked: Path) -> None:
    store = open_store(forked)
    for number in range(60):
        store.fork("yard")
        store.append("yard", said(f"Number {number}."))
    store.close()
    shown = leporello("sessions", "show", "yard", "--last", "0", "--store", forked).out
    assert "user: Number 59." in shown
    assert max(map(len, shown.splitlines())) <= 160


def test_a_verdict_counts_what_is_on_other_branches_apart(leporello: Leporello, forked: Path) -> None:
    done = leporello("verify", "port", "--store", forked)
    assert done.out == "✓ port: 6 messages, 1 replaced or on other branches, 0 nodes: nothing is lost\n"


def test_a_stored_title_is_listed_instead_of_the_first_request(leporello: Leporello, forked: Path) -> None:
    assert "Which berth is free?" in leporello("sessions", "list", "--store", forked).out
    store = open_store(forked)
    store.ensure("port", title="Berths and cranes")
    store.close()
    shown = leporello("sessions", "list", "--store", forked).out
    assert "Berths and cranes" in shown
    assert "Which berth is free?" not in shown


# a host that forgot


@pytest.fixture
def begun_again(tmp_path: Path) -> Path:
    """A store with a conversation of two roots: the first was forked, the second is the head."""
    path = tmp_path / "roots.db"
    store = open_store(path)
    ids = store.append("port", [{"role": "system", "content": "Be brief."}, *said("Which berth?", "Berth three.")])
    store.fork("port", before=ids[2])
    store.append("port", said("", "Berth four.")[1:])
    store.ingest("port", [{"role": "system", "content": "Be brief."}, *said("Good morning!", "Good morning.")])
    store.close()
    return path


def check_roots(leporello: Leporello, path: Path) -> None:
    """Both roots stand at the left of the tree, and an export has what was said on both, the older one first."""
    lines = leporello("sessions", "show", "port", "--last", "0", "--store", path).out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("branch "))
    assert [" ".join(line.split()) for line in lines[at + 1 :]] == [
        "1 2 m3 assistant: Berth three.",
        "└ 2 1 m2 2 m4 assistant: Berth four.",
        "3 2 head m6 assistant: Good morning.",
    ]
    written = leporello("sessions", "export", "port", "--store", path).out.splitlines()
    assert [json.loads(line)["content"] for line in written] == [
        "Be brief.",
        "Which berth?",
        "Berth four.",
        "Good morning!",
        "Good morning.",
    ]


def test_roots_are_shown_and_exported_one_after_the_other(
    leporello: Leporello, begun_again: Path, tmp_path: Path
) -> None:
    check_roots(leporello, begun_again)
    done = leporello("sessions", "export", "port", "--output", tmp_path / "port.jsonl", "--store", begun_again)
    assert "wrote 4 messages" in done.err
    bundle = tmp_path / "port.bundle"
    assert (
        "5 messages"
        in leporello("sessions", "export", "port", "--bundle", "--output", bundle, "--store", begun_again).err
    )
    leporello("import", bundle, "--store", tmp_path / "copy.db")
    shown = leporello("sessions", "show", "port", "--store", tmp_path / "copy.db", "--json").json
    assert [(each["id"], each["parent"], each["head"]) for each in shown["branches"]] == [
        (1, None, False),
        (2, 1, False),
        (3, None, True),
    ]
    assert leporello("verify", "--store", tmp_path / "copy.db").code == 0


def test_planted_an_export_of_the_head_alone(
    leporello: Leporello, begun_again: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def head_alone(store: Store, info: ConversationInfo) -> list[BranchInfo]:
        return [branch for branch in store.branches(info.key) if branch.head]

    monkeypatch.setattr(branches, "newest_of_roots", head_alone)
    with pytest.raises(AssertionError):
        check_roots(leporello, begun_again)
