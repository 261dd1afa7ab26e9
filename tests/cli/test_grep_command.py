"""`leporello grep`: whatever was said is found, folded or not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from leporello.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello


@pytest.mark.parametrize("query", ["PORT-2291", "8c1f2e6a-41d7-4c55-9f0e-2b7a6d90e113", "booking", "part_04.py"])
def test_a_folded_message_is_found_with_its_node(leporello: Leporello, folded: Path, query: str) -> None:
    done = leporello("grep", query, "--role", "user", "--store", folded, "--json")
    assert done.code == 0
    first = done.json["results"][0]
    assert (first["id"], first["conversation"], first["role"]) == ("m13", "harbour", "user")
    assert "PORT-2291" in first["snippet"]
    assert first["node"] in done.json["nodes"], "the message is folded, and the node that covers it is named"


def test_people_get_id_node_and_text(leporello: Leporello, folded: Path) -> None:
    done = leporello("grep", "PORT-2291", "--store", folded)
    head, text = done.out.splitlines()
    assert head.split()[:2] == ["m13", "in"]
    assert "Ticket PORT-2291" in text


def test_nothing_found_is_exit_code_1(leporello: Leporello, folded: Path) -> None:
    done = leporello("grep", "PORT-9999", "--store", folded)
    assert (done.code, done.out, done.err) == (1, "", "leporello: nothing found\n")


def test_filters_narrow_the_search(leporello: Leporello, folded: Path) -> None:
    def roles(*options: str) -> set[str]:
        found = leporello("grep", "part_07", "--limit", "50", "--store", folded, "--json", *options)
        return {hit["role"] for hit in found.json["results"]}

    assert roles() == {"user", "assistant", "tool"}
    assert roles("--role", "tool") == {"tool"}
    assert roles("--tool", "read_file") == {"assistant", "tool"}
    assert roles("--tool", "terminal") == set()
    assert roles("--since", "1h") == roles()
    assert roles("--until", "1h") == set()
    assert roles("--until", "2020-01-01") == set()
    assert roles("--conversation", "harbour") == roles()


def test_the_cursor_leads_through_all_hits_once(leporello: Leporello, folded: Path) -> None:
    seen: list[str] = []
    cursor: list[str] = []
    for _ in range(20):
        done = leporello("grep", "please", "--limit", "7", "--store", folded, "--json", *cursor)
        seen += [hit["id"] for hit in done.json["results"]]
        if not done.json["cursor"]:
            break
        cursor = ["--cursor", done.json["cursor"]]
    assert len(seen) == len(set(seen)) == 30


def test_newest_first(leporello: Leporello, folded: Path) -> None:
    done = leporello("grep", "please", "--sort", "recency", "--limit", "3", "--store", folded, "--json")
    assert [hit["id"] for hit in done.json["results"]] == ["m88", "m85", "m82"]


def test_a_regular_expression(leporello: Leporello, folded: Path) -> None:
    done = leporello("grep", r"PORT-\d{4}", "--regex", "--store", folded, "--json")
    assert [hit["id"] for hit in done.json["results"]] == ["m13"]


def test_other_conversations_are_searched_unless_one_is_named(leporello: Leporello, folded: Path) -> None:
    store = open_store(folded)
    store.append("yard", [{"role": "user", "content": "PORT-2291 again"}])
    store.close()
    found = leporello("grep", "PORT-2291", "--store", folded, "--json").json["results"]
    assert {hit["conversation"] for hit in found} == {"harbour", "yard"}
    found = leporello("grep", "PORT-2291", "--conversation", "yard", "--store", folded, "--json").json["results"]
    assert {hit["conversation"] for hit in found} == {"yard"}


def test_conversations_of_others_are_searched_when_their_owner_is_named(leporello: Leporello, folded: Path) -> None:
    store = open_store(folded)
    store.append("private", [{"role": "user", "content": "the quay of Ana"}], owner="ana")
    store.close()
    missed = leporello("grep", "quay", "--store", folded)
    assert missed.code == 1
    assert "others belong to ana (--owner)" in missed.err
    assert leporello("grep", "quay", "--owner", "ana", "--store", folded).code == 0
    assert leporello("grep", "quay", "--conversation", "private", "--store", folded).code == 0


def test_escape_sequences_do_not_reach_the_terminal(leporello: Leporello, folded: Path) -> None:
    store = open_store(folded)
    store.append("yard", [{"role": "user", "content": "quay \x1b]0;owned\x07 \ud800 \u202eturned\u2066 end"}])
    store.close()
    done = leporello("grep", "quay", "--store", folded)
    assert not set("\x1b\u202e\u2066") & set(done.out)
    assert "<U+202E>turned" in done.out
    assert leporello("grep", "quay", "--store", folded, "--json").json["results"], "half a character is no problem"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["[", "--regex"], "regular expression cannot be read"),
        (["x", "--since", "never"], "since must be a time"),
        (["x", "--limit", "0"], "--limit"),
        (["x", "--cursor", "nonsense"], "cursor"),
        (["x", "--role", "robot"], "--role"),
    ],
)
def test_mistakes_are_told_in_words(leporello: Leporello, folded: Path, arguments: list[str], told: str) -> None:
    done = leporello("grep", *arguments, "--store", folded)
    assert done.code == 2
    assert told in done.err


def test_an_unknown_conversation_is_told_with_the_nearest(leporello: Leporello, folded: Path) -> None:
    done = leporello("grep", "x", "--conversation", "harbor", "--store", folded)
    assert done.code == 1
    assert "did you mean 'harbour'?" in done.err


def test_an_age_counts_back_from_now(leporello: Leporello, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    store = open_store(path, clock=lambda: time.time() - 3 * 86_400)
    store.append("old", [{"role": "user", "content": "three days ago"}])
    store.close()
    assert leporello("grep", "days", "--since", "4d", "--store", path).code == 0
    assert leporello("grep", "days", "--since", "2d", "--store", path).code == 1
