"""What is indexed for a message."""

from __future__ import annotations

import json
import re
import sqlite3
import string
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, settings, strategies as st
from inline_snapshot import snapshot

from leporello.store.search import FTS_DDL, parse, plain_text, prepared_text
from leporello.store.search.counting import count, has_words, readable
from leporello.store.search.prepare import folded_terms, stemmed_terms
from leporello.store.search.stem import openings, stem

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message

WORDS = ["paint", "painted", "painting", "pain", "go", "went", "gone", "中文", "naïve", "src/a_1.py"]
HAN = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=1, max_size=5)
MIXED = st.text(string.ascii_letters + string.digits + " _-./:\n" + "中文字한국カナéüßЖ😀✅", max_size=60)


def finds(message: Message, query: str, prepare: Callable[[Message], str] = prepared_text) -> bool:
    """Tell whether an index of one message finds it."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(FTS_DDL)
        connection.execute("INSERT INTO search (rowid, text) VALUES (1, ?)", (prepare(message),))
        match = parse(query).match_exact()
        return bool(match and connection.execute("SELECT 1 FROM search WHERE search MATCH ?", (match,)).fetchone())
    finally:
        connection.close()


def said(text: str) -> Message:
    return {"role": "user", "content": text}


def called(arguments: str) -> Message:
    function = {"name": "run_command", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}


def test_the_terms_of_a_message() -> None:
    message: Message = {
        **called('{"command": "cat src/app_1.py", "lines": 20}'),
        "name": "Ann",
        "content": "Café 中文abc 👍🏽 running",
    }
    assert prepared_text(message) == snapshot("ann cafe 中 文 abc 👍 🏽 run run command cat src app 1 py 20")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("It is 550e8400-e29b-41d4-a716-446655440000 here", "550e8400-e29b-41d4-a716-446655440000"),
        ("on svc-1234-prod-eu only", "svc-1234-prod-eu"),
        ("see src/mod12/handler_12.py", "src/mod12/handler_12.py"),
        ("raise retry_limit_max", "retry_limit_max"),
        ("raise retry_limit_max", "limit"),
        ("部署youer12x需要", "youer12x"),
        ("部署youer12x需要", "署"),
        ("한국어를 배우다", "국어"),
        ("done 👍🏽 now", "👍"),
        ("love ❤️", "❤"),
        ("I went there", "go"),
        ("STRASSE", "straße"),
        ("Cafe\u0301 au lait", "café"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),
        ("ภาษาไทยง่าย", "ไทย"),
        ("हिन्दी में", "हिन्दी"),
        ("カ\u3099ラス", "ガラス"),
        ('{"out": "first\\nsecond \\u4e2d\\u6587"}', "second"),
        ('{"out": "first\\nsecond \\u4e2d\\u6587"}', "中文"),
    ],
)
def test_what_stands_in_a_message_finds_it(text: str, query: str) -> None:
    assert finds(said(text), query)


def test_a_piece_in_another_order_does_not_find_an_identifier() -> None:
    assert not finds(said("svc-1234-prod-eu"), "prod-1234-svc")


@given(MIXED)
def test_any_word_of_a_text_finds_it(text: str) -> None:
    for word in re.findall(r"[^\W_]+", text):
        assert finds(said(text), f'"{word}"'), word


@given(HAN, MIXED, MIXED)
def test_any_run_of_chinese_finds_the_message(run: str, before: str, after: str) -> None:
    assert finds(said(before + run + after), run)


def test_an_index_without_call_arguments_is_caught() -> None:
    message = called('{"command": "make --shard-key=zone7"}')

    def without_calls(message: Message) -> str:
        return prepared_text({**message, "tool_calls": []})

    assert finds(message, "--shard-key=zone7")
    assert not finds(message, "--shard-key=zone7", without_calls)


def test_an_index_that_glues_scripts_together_is_caught() -> None:
    message = said("部署youer12x需要")

    def glued(message: Message) -> str:
        return str(message["content"]).lower()

    assert finds(message, "youer12x")
    assert not finds(message, "youer12x", glued)


def test_no_secret_is_indexed_but_the_text_is_shown_as_written() -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    message = said(f"my token is {key} ok")
    assert not finds(message, key)
    assert finds(message, key, lambda message: " ".join(stemmed_terms(plain_text(message))))
    assert key in plain_text(message)


def test_a_secret_in_call_arguments_is_not_indexed() -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    assert not finds(called(json.dumps({"headers": {"Authorization": f"Bearer {key}"}})), key)


def test_a_very_long_message_is_indexed_to_its_end() -> None:
    assert finds(said("lorem ipsum " * 350_000 + "needle_42"), "needle_42")


@pytest.mark.parametrize(
    "text", ["[" * 100_000 + "\\", '{"a":' * 50_000 + "\\", "\u0301\u0323" * 100_000, "a" * 300_000]
)
def test_hostile_text_is_prepared(text: str) -> None:
    assert isinstance(prepared_text(said(text)), str)


@given(st.text(st.characters(), max_size=40) | st.just("\ud800\x00x"))
def test_any_text_becomes_terms_that_a_database_takes(text: str) -> None:
    prepared = prepared_text(said(text))
    prepared.encode()
    assert not set(prepared) & set(string.punctuation + string.ascii_uppercase + "\x00\n\t")


@given(st.recursive(st.none() | st.booleans() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)))
def test_any_content_is_prepared(content: object) -> None:
    assert isinstance(prepared_text(cast("Message", {"role": "tool", "content": content, "tool_calls": content})), str)


@pytest.mark.parametrize(
    ("words", "stems"),
    [
        ("caresses ponies cats feed agreed plastered motoring", "caress poni cat feed agre plaster motor"),
        ("conflated hopping falling filing happy sky", "conflat hop fall file happi sky"),
        ("relational digitizer operator hopefulness", "relat digit oper hope"),
        (
            "triplicate electrical replacement adoption probate rate controll",
            "triplic electr replac adopt probat rate control",
        ),
        ("went children bought mice", "go child bui mous"),
        ("h264 v2 naïve", "h264 v2 naïve"),
    ],
)
def test_stems(words: str, stems: str) -> None:
    assert [stem(word) for word in words.split()] == stems.split()


@given(st.text("abdeghilmnorstuyz", min_size=1, max_size=12))
def test_every_word_begins_like_its_stem_says(word: str) -> None:
    assert word.startswith(openings(stem(word)))


@settings(max_examples=200)
@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_counting_agrees_with_the_terms(words: list[str]) -> None:
    text = " ".join(words)
    terms = stemmed_terms(text)
    for term in {*terms, "paint", "pain", "go"}:
        assert count(term, readable(text)) == min(16, terms.count(term)), term


def test_folding_is_done_before_stemming() -> None:
    assert folded_terms("Größe RUNNING") == ["grosse", "running"]


@given(MIXED, st.lists(st.sampled_from(["ab", "1", "cd", "中"]), min_size=1, max_size=3))
def test_words_are_recognised_alike_in_any_script(text: str, phrase: list[str]) -> None:
    """The quick way for ASCII texts agrees with the cut into terms."""
    for whole in (text, f"{text} {'-'.join(phrase)} {text}", "".join(c for c in text if c.isascii()) + " ab-1"):
        expected = f" {' '.join(phrase)} " in f" {' '.join(folded_terms(whole))} "
        assert has_words([tuple(phrase)], whole) == expected
