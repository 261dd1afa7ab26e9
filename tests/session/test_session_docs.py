"""The pages about sessions are true: they name everything there is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from leporello.session import AsyncSession, Session, SessionUsage, Spent, events
from leporello.session.conversation import Conversation

DOCS = Path(__file__).parent.parent.parent / "docs"


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def named(page: str) -> set[str]:
    return {name for code in re.findall(r"`([^`\n]+)`", text_of(page)) for name in re.findall(r"\w+", code)}


def test_the_reference_names_everything_that_a_session_has() -> None:
    names = {name for name in dir(Session) if not name.startswith("_")}
    assert names - named("reference/session.md") == set()
    fields = {field.name for kind in (SessionUsage, Spent) for field in dataclasses.fields(kind)}
    assert fields - named("reference/session.md") - {"session_id", "engine", "model", "caching"} == set()
    told = {
        name for name, kind in vars(events).items() if isinstance(kind, type) and kind.__module__ == events.__name__
    }
    assert told - named("reference/session.md") == set()


def test_an_async_session_has_the_same_names() -> None:
    names = {name for name in dir(Session) if not name.startswith("_")} - {"record_stream"}
    assert names - set(dir(AsyncSession)) == set()


def test_the_explanation_names_everything_that_a_conversation_does() -> None:
    methods = {name for name, kind in vars(Conversation).items() if callable(kind) and not name.startswith("_")}
    turn = {"begin", "add", "request", "record", "recover", "compact", "undo", "switch_model", "request_failed", "end"}
    assert turn <= methods
    assert turn - named("explanation/one-turn.md") == set()
