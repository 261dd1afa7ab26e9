"""Every conversation has a title: the one it was given, or its first request, on one short line without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from leporello.store import open_store
from leporello.store.titles import LENGTH, shortened, title_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages import Message
    from leporello.store import Store

SECRET = "sk-proj-" + "Ab3dEf6hIj9lMn2pQr5tUv8x"


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store(":memory:")
    yield opened
    opened.close()


def titled(store: Store, *messages: Message, title: str | None = None) -> str:
    store.ensure("talk", title=title)
    store.append("talk", list(messages))
    info = store.info("talk")
    assert info is not None
    return title_of(store, info)


def said(text: str, role: str = "user") -> Message:
    return {"role": role, "content": text}


def test_the_title_that_was_given_is_kept(store: Store) -> None:
    assert titled(store, said("Look at the harbour"), title="Harbour\nworks") == "Harbour works"


def test_else_it_is_the_first_request(store: Store) -> None:
    assert titled(store, said("You look at parts.", "system"), said("Look at\n\n  the harbour"), said("And then?")) == (
        "Look at the harbour"
    )


def test_what_an_agent_puts_before_the_request_is_no_title(store: Store) -> None:
    context = '<environment_context kind="x">\n<cwd>/home</cwd>\n</environment_context>'
    assert titled(store, said(context), said(f"{context}\n<note>a</note> Fix the parser")) == "Fix the parser"


def test_without_a_request_it_is_the_name(store: Store) -> None:
    assert titled(store, said("Hello, I am here.", "assistant")) == "talk"


def test_a_long_one_is_cut_between_words(store: Store) -> None:
    title = titled(store, said("Please look at every part of the harbour " * 10))
    assert len(title) <= LENGTH
    assert title.endswith("…")
    assert set(title.removesuffix("…").split()) <= {"Please", "look", "at", "every", "part", "of", "the", "harbour"}


def test_secrets_are_not_in_a_title(store: Store) -> None:
    title = titled(store, said(f"Use the key {SECRET} for it"))
    assert not any(SECRET[at : at + 8] in title for at in range(8, len(SECRET) - 8))
    assert SECRET[:20] in f"Use the key {SECRET}"[:LENGTH], "a title that is only cut would show it"


@given(st.text(), st.integers(12, 120))
def test_a_title_is_one_line_of_its_length(text: str, length: int) -> None:
    title = shortened(text, length)
    assert len(title) <= length
    assert "\n" not in title
    assert "\x1b" not in title
