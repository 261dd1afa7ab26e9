"""The pages about sessions are true: their Python runs, and they name everything there is."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from leporello.session import AsyncSession, Session, SessionUsage, Spent, events
from leporello.session.conversation import Conversation

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = ("how-to/your-own-loop.md", "reference/session.md", "explanation/one-turn.md", "explanation/branches.md")


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def named(page: str) -> set[str]:
    return {name for code in re.findall(r"`([^`\n]+)`", text_of(page)) for name in re.findall(r"\w+", code)}


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in text_of(page)])
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE))
    environment = {"LEPORELLO_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_its_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text_of(page))
    assert [link for link in links if not ((DOCS / page).parent / link).exists()] == []


def test_the_reference_names_everything_that_a_session_has() -> None:
    names = {name for name in vars(Session) if not name.startswith("_")}
    assert names - named("reference/session.md") == set()
    fields = {field.name for kind in (SessionUsage, Spent) for field in dataclasses.fields(kind)}
    assert fields - named("reference/session.md") - {"session_id", "engine", "model", "caching"} == set()
    told = {
        name for name, kind in vars(events).items() if isinstance(kind, type) and kind.__module__ == events.__name__
    }
    assert told - named("reference/session.md") == set()


def test_an_async_session_has_the_same_names() -> None:
    names = {name for name in vars(Session) if not name.startswith("_")} - {"record_stream"}
    assert names - set(vars(AsyncSession)) == set()


def test_the_explanation_names_everything_that_a_conversation_does() -> None:
    methods = {name for name, kind in vars(Conversation).items() if callable(kind) and not name.startswith("_")}
    turn = {"begin", "add", "request", "record", "recover", "compact", "undo", "switch_model", "request_failed", "end"}
    assert turn <= methods
    assert turn - named("explanation/one-turn.md") == set()
