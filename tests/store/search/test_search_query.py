"""The query language."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from leporello.store import SearchFilter
from leporello.store.search import FTS_DDL, parse
from leporello.store.search.prepare import stemmed_terms

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()
ODD = st.text(st.sampled_from("ab中😀 \"'-:*^()+{}\\/_\x00\ud800\n") | st.characters(), max_size=30)
PIECES = st.lists(
    st.sampled_from(['"', "-", "role:", "since:", "until:9", "AND", "NOT", "NEAR(", "a*", "^b", "{c}:", "?", " ", "x"]),
    max_size=12,
).map("".join)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("two words", '"two" AND "word"'),
        ('"two words" more', '"two word" AND "more"'),
        ("src/app_1.py", '"src app 1 py"'),
        ("keep -drop", '("keep") NOT ("drop")'),
        ('keep -"drop this"', '("keep") NOT ("drop thi")'),
        ("rm -rf --force", '"rm" AND "rf" AND "forc"'),
        ("well-made", '"well make"'),
        ('"unclosed quote', '"unclos" AND "quot"'),
        ('"the two words"', '"the two word"'),
        ('"mind the words"', 'NEAR("mind" "word", 1)'),
        ('"the red box of the green man is"', 'NEAR("the red box" "green man is", 2)'),
        ('"to be or not"', '"to be or not"'),
        ("中文 words", '"中 文" AND "word"'),
        ("a AND b OR NOT c", '"a" AND "and" AND "b" AND "or" AND "not" AND "c"'),
        ("same same", '"same"'),
        ("role:nobody", '"role nobodi"'),
        ("since:someday", '"sinc somedai"'),
        ("-- ! ?", ""),
        ("", ""),
    ],
)
def test_exact_expressions(text: str, match: str) -> None:
    assert parse(text).match_exact() == match


def test_an_exact_expression_may_have_all_words_of_a_phrase() -> None:
    assert parse('"mind the words" more').match_exact(whole=True) == '"mind the word" AND "more"'


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("What did Ann paint in the garden?", '"ann" OR "paint" OR "garden"'),
        ("where is src/app_1.py used?", '"src app 1 py" OR "us"'),
        ('who wrote the book "Old Times"?', '"write" OR "book" OR "old time" OR "old" OR "time"'),
        ("什么时候部署的？", '"什 么" OR "么 时" OR "时 候" OR "候 部" OR "部 署" OR "署 的"'),
        ("is it the?", '"is" OR "it" OR "the"'),
    ],
)
def test_questions_look_for_their_content(text: str, match: str) -> None:
    query = parse(text)
    assert query.question
    assert query.match_natural() == match


@pytest.mark.parametrize("text", ["the quick fox", "how to", '"what did we do"', "find bug", "svc-1?", "name error"])
def test_other_texts_are_no_questions(text: str) -> None:
    assert not parse(text).question


@pytest.mark.parametrize(
    "name", ["do_append_session_page", "is_valid_for_user", "can/be/found.py", "has.no.value", "do_x_y?"]
)
def test_a_name_that_begins_like_a_question_is_a_name(name: str) -> None:
    assert not parse(name).question
    assert not parse(f"{name} failed here").question
    assert parse(f"Where was {name} changed?").question


def test_fields() -> None:
    query = parse('role:User tool:read_file name:"Ann Lee" since:2026-03-01 until:2026-03-02 rest', now=NOW)
    assert (query.role, query.tool, query.name) == ("user", "read_file", "Ann Lee")
    assert query.since == datetime(2026, 3, 1, tzinfo=UTC).timestamp()
    assert query.until == pytest.approx(datetime(2026, 3, 3, tzinfo=UTC).timestamp(), abs=0.001)
    assert query.match_exact() == '"rest"'


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5_400), ("2h", 7_200), ("7d", 604_800), ("1w", 604_800)])
def test_times_ago(text: str, seconds: int) -> None:
    assert parse(f"since:{text}", now=NOW).since == NOW - seconds


def test_a_query_narrows_a_filter_and_never_widens_it() -> None:
    scope = SearchFilter(conversation="c", role="user", since=100.0)
    narrowed = parse("x since:1970-01-01 name:Ann").narrow(scope)
    assert narrowed == SearchFilter(conversation="c", role="user", since=100.0, name="Ann")
    assert parse("x role:tool").narrow(scope) is None


@given(ODD | PIECES)
def test_any_text_is_a_query_that_the_database_reads(text: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(FTS_DDL)
    query = parse(text, now=NOW)
    for match in (query.match_exact(), query.match_natural()):
        if match:
            connection.execute("SELECT rowid FROM search WHERE search MATCH ?", (match,)).fetchall()
    assert bool(query.match_exact()) == bool(query.phrases)
    connection.close()


WORDS = st.lists(st.sampled_from(["the", "of", "is", "deployment", "queue", "worker", "mind"]), min_size=1, max_size=9)


@given(WORDS, st.data())
def test_a_text_is_found_by_any_quoted_part_of_it(words: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(words) - 1))
    end = data.draw(st.integers(start + 1, len(words)))
    connection = sqlite3.connect(":memory:")
    connection.execute(FTS_DDL)
    connection.execute("INSERT INTO search (rowid, text) VALUES (1, ?)", (" ".join(stemmed_terms(" ".join(words))),))
    match = parse(f'"{" ".join(words[start:end])}"').match_exact()
    assert connection.execute("SELECT rowid FROM search WHERE search MATCH ?", (match,)).fetchall() == [(1,)]
    connection.close()


def test_an_unescaped_expression_is_caught_by_the_same_database() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(FTS_DDL)
    with pytest.raises(sqlite3.OperationalError):
        connection.execute("SELECT rowid FROM search WHERE search MATCH ?", ("src/app AND",)).fetchall()
    connection.close()


def test_a_very_long_query_is_cut_to_what_the_database_takes() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(FTS_DDL)
    query = parse(" ".join(f"w{n}" for n in range(5_000)) + " " + "a-" * 5_000)
    quoted = parse(f'"{"word of " * 5_000}"')
    connection.execute("SELECT rowid FROM search WHERE search MATCH ?", (quoted.match_exact(),)).fetchall()
    connection.execute("SELECT rowid FROM search WHERE search MATCH ?", (query.match_exact(),)).fetchall()
    connection.execute("SELECT rowid FROM search WHERE search MATCH ?", (query.match_natural(),)).fetchall()
    connection.close()
