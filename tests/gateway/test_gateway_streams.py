"""Streams of real clients with gaps between the provider's events: each is one conversation, and none hangs.

LEPORELLO_SOAK=1 holds a thousand conversations of forty turns, with LiteLLM's SDK where it is installed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from benchmarks import gateway_streams as streams, streaming_client

from leporello.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
OFFICIAL = ["openai chat", "openai responses", "anthropic"]


@pytest.mark.slow
def test_no_conversation_splits_or_hangs() -> None:
    kinds = list(streams.interpreters(streaming_client.CLIENTS)) if SOAK else OFFICIAL
    sessions, turns = (1_000 // len(kinds), 40) if SOAK else (2, 4)
    size = ["--sessions", str(sessions), "--turns", str(turns), "--kinds", *kinds]
    held, wrong = streams.measure(streams.size(size))
    assert [one.error for one in held if one.error] == []
    assert wrong == []
    assert {len(one.said) for one in held} == {2 * turns}
    assert len(held) == sessions * len(kinds)


def test_what_is_split_or_lost_would_be_noticed(tmp_path: Path) -> None:
    path, said = tmp_path / "a.db", ["one", "yes", "two", "no"]
    store = open_store(path)
    roles = ["user", "assistant"] * 2
    store.append("a", [{"role": role, "content": text} for role, text in zip(roles, said, strict=True)])
    held = streams.Session(kind="any", said=said, longest=0.1)
    assert streams.wrong_in(path, [held]) == []
    assert streams.wrong_in(path, [streams.Session(kind="any", said=said[:2], longest=0.1)])
    store.append("b", [{"role": "user", "content": "one"}])
    assert streams.wrong_in(path, [held])
    store.close()
