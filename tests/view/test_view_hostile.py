"""Text of strangers on the page: shown, and never obeyed; secrets hidden until they are asked for."""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
from tests.fixtures.view import client_of, parsed

from leporello.store import JournalRow, open_store
from leporello.view import rendering, text
from leporello.view.pages import ENTRIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.testclient import TestClient
    from tests.fixtures.view import Parsed

    from leporello.store import Store

BAD = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><b style=color:red>"
BAD += "\x1b[2J\x07\u202egnp.exe\u2066\u200b{{7*7}}"
SECRET = "sk-ant-api03-" + "aB3" * 30 + "-xyzAA"
TAGS = frozenset(
    re.findall(
        "[a-z0-9]+",
        "html head meta title link script body a header div img form label input button main footer h1 h2 h3 p nav ul "
        "li table thead tr th tbody td span time details summary pre code svg rect line circle text polygon path g "
        "strong small dl dt dd output mark br",
    )
)
LONG = 10 * 1024 * 1024
PAGE_LIMIT = 400_000


@pytest.fixture(scope="module")
def hostile() -> Iterator[Store]:
    with hostile_store(LONG) as store:
        yield store


@contextmanager
def hostile_store(length: int) -> Iterator[Store]:
    """Open a store in which everything that can hold a text holds a bad one, and one message is long."""
    with closing(open_store(":memory:")) as store:
        key = f"key {BAD.replace(chr(7), '')}".replace("\x1b", "")
        call = {"id": "c1", "type": "function", "function": {"name": BAD, "arguments": f'{{"x": "{SECRET}"}}'}}
        store.ensure(key, title=f"title {BAD}")
        ids = store.append(
            key,
            [
                {"role": "system", "content": BAD},
                {"role": "user", "content": f"{BAD} my key is {SECRET}", "name": "mallory"},
                {"role": "assistant", "content": BAD, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": BAD}, {"type": BAD}]},
                {"role": "assistant", "content": f"{BAD} " * 50 + "long " * (length // 5)},
            ],
        )
        report = {"model": BAD, "engine": BAD, "prefix": BAD, "trigger": BAD, "error": BAD, "tokens_lost": 3}
        store.record_request(
            key,
            JournalRow(reason="request", keep=0, added=tuple({"m": id_} for id_ in ids), report=report),
        )
        store.record_request(key, JournalRow(reason=BAD, keep=2, added=({"t": BAD, "role": "user"},), report=report))
        yield store


def crawled(client: TestClient) -> dict[str, str]:
    """Return every page and fragment that can be reached from the list."""
    pages: dict[str, str] = {}
    waiting = deque(["/view", "/view/search?q=alert", "/view/search?q=%3Cscript%3E"])
    while waiting and len(pages) < 45:
        address = waiting.popleft()
        if address in pages:
            continue
        answer = client.get(address, headers={"hx-request": "true"} if "entry?" in address else {})
        assert answer.status_code in (200, 404), address
        pages[address] = answer.text
        if "html" in answer.headers["content-type"]:
            found = parsed(answer.text).addresses()
            waiting += [one for one in found if one.startswith("/view") and "reveal" not in one]
    assert len(pages) > 15
    return pages


def problems(client: TestClient) -> set[str]:
    """Return what is wrong with the pages."""
    found: set[str] = set()
    for address, html in crawled(client).items():
        if SECRET[:20] in html:
            found.add("a secret")
        if "static" in address:
            continue
        if len(html) > PAGE_LIMIT and "raw" not in address:
            found.add("too long")
        if "raw" in address:
            continue
        made = parsed(html)
        found |= {f"<{tag}>" for tag, _ in made.tags if tag not in TAGS}
        found |= {"elsewhere" for one in made.addresses() if not one.startswith("/view")}
        found |= {name for _, values in made.tags for name in values if name.startswith("on") or name == "style"}
        found |= {
            "script"
            for tag, values in made.tags
            if tag == "script" and not values.get("src", "").startswith("/view/static/")
        }
        signs = set(re.findall("[\x00-\x08\x0b-\x1f\u202e\u2066\u200b]", _seen(made)))
        found |= {unicodedata.name(sign, repr(sign)) for sign in signs}
    return found


def test_nothing_in_a_message_is_obeyed(hostile: Store) -> None:
    assert problems(client_of(hostile)) == set()


DEFECTS = {
    "unescaped": {"onerror", "script", "style", "elsewhere"},
    "invisible": {"RIGHT-TO-LEFT OVERRIDE"},
    "unhidden": {"a secret"},
    "whole": {"too long"},
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_what_is_wrong_with_a_page_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = jinja2.Environment
    if defect == "unescaped":
        monkeypatch.setattr(
            rendering, "Environment", lambda *args, **options: real(*args, **{**options, "autoescape": False})
        )
    if defect == "invisible":
        for name in ("visible", "one_line"):
            monkeypatch.setattr(text, name, str)
            monkeypatch.setattr(rendering, name, str)
    if defect == "unhidden":
        monkeypatch.setattr(text, "redact_part", lambda whole, start, stop: whole[start:stop])
    if defect == "whole":
        monkeypatch.setattr(text, "PIECE", LONG)
    with hostile_store(2 * PAGE_LIMIT if defect == "whole" else 1_000) as store:
        assert problems(client_of(store)) >= DEFECTS[defect]


def test_a_secret_is_shown_when_it_is_asked_for(hostile: Store) -> None:
    client = client_of(hostile)
    (info,) = hostile.conversations()
    place = {"c": info.key, "at": "1", "index": "1"}
    hidden = client.get("/view/entry", params=place, headers={"hx-request": "true"}).text
    assert SECRET not in hidden
    assert "Reveal 1 hidden secret" in hidden
    assert SECRET in client.get("/view/entry", params={**place, "reveal": "1"}, headers={"hx-request": "true"}).text
    assert SECRET not in client.get("/view/raw", params={"c": info.key, "at": "1"}).text
    assert SECRET in client.get("/view/raw", params={"c": info.key, "at": "1", "reveal": "1"}).text


def test_a_long_text_is_shown_piece_by_piece(hostile: Store) -> None:
    client = client_of(hostile)
    (info,) = hostile.conversations()
    long = list(hostile.messages(info.key))[-1]
    answer = client.get(
        "/view/message", params={"c": info.key, "id": long.id, "start": LONG - 100}, headers={"hx-request": "true"}
    )
    assert "long long" in answer.text
    assert len(answer.text) < PAGE_LIMIT


def test_a_page_never_holds_more_than_a_page_of_messages() -> None:
    with closing(open_store(":memory:")) as store:
        said: list[Any] = [
            {"role": "user" if at % 2 else "assistant", "content": f"message {at}"} for at in range(1_000)
        ]
        store.append("c", said)
        client = client_of(store)
        assert client.get("/view/window?c=c").text.count("<details") <= ENTRIES
        assert client.get("/view/originals?c=c&first=1&last=1000").text.count("<details") == ENTRIES


def _seen(made: Parsed) -> str:
    """Return what a reader sees or hears of a page; a hidden field holds a key as it is."""
    shown = [value for tag, values in made.tags if values.get("type") != "hidden" for value in values.values()]
    return "".join([*made.texts, *shown])
