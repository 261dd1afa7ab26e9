"""Searching a store: what is found, in which order, and page by page."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import example, given, settings, strategies as st

from leporello.errors import QueryError
from leporello.store import Candidate, SearchFilter, open_store
from leporello.store.search import FTS_DDL, parse, prepared_text, search
from leporello.store.search.hits import BLOCK
from leporello.store.search.rank import Statistics, ranked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leporello.messages import Message
    from leporello.store import Store
    from leporello.store.search import Hit

DATABASES = True

TALK = "talk"
NEEDLES = {
    "word": ("zqbalumo", "The word nobody wrote down was zqbalumo."),
    "identifier": ("retry_limit_7_max", "Please raise retry_limit_7_max to nine."),
    "uuid": ("550e8400-e29b-41d4-a716-446655440000", "trace 550e8400-e29b-41d4-a716-446655440000 in the log"),
    "hyphenated id": ("svc-1234-prod-eu", "It runs on svc-1234-prod-eu only."),
    "path": ("src/mod7/handler_7.py", "Look into src/mod7/handler_7.py first."),
    "CJK, long": ("鼨齀齄鼓龍", "我们今天讨论鼨齀齄鼓龍的问题"),
    "CJK, short": ("龜黽", "请检查龜黽然后发布"),
    "Latin in CJK": ("youer7x", "部署youer7x需要重新检查"),
    "emoji": ("🦔🫠", "Shipped it 🦔🫠 finally"),
    "tool-call arguments": ("--shard-key=zone7q", "run-migration --shard-key=zone7q --dry"),
}


def said(text: str, role: str = "user", **fields: str) -> Message:
    return cast("Message", {"role": role, "content": text, **fields})


def called(command: str) -> Message:
    function = {"name": "terminal", "arguments": f'{{"command": "{command}"}}'}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": command, "type": "function", "function": function}],
    }


def noise(count: int, seed: int = 1) -> list[Message]:
    chance = random.Random(seed)
    words = ["svc", "prod", "eu", "src", "mod7", "handler", "py", "retry", "limit", "max", "run", "migration", "shard"]
    words += ["key", "zone", "今天", "讨论", "部署", "检查", "the", "a", "7", "trace"]
    return [said(f"{n} " + " ".join(chance.choices(words, k=20))) for n in range(count)]


def haystack() -> list[Message]:
    messages = noise(400)
    for place, (kind, (_, text)) in enumerate(NEEDLES.items()):
        messages.insert(place * 37, called(text) if kind == "tool-call arguments" else said(text))
    return messages


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store(":memory:", clock=lambda: 1_000_000.0)
    store.ensure(TALK)
    yield store
    store.close()


def hits(store: Store, text: str, **options: object) -> tuple[Hit, ...]:
    return search(store, text, filter=SearchFilter(conversation=TALK), **options).hits  # type: ignore[arg-type]


def kinds_missed(find: Callable[[str], Sequence[str]]) -> list[str]:
    """Return the kinds of needle that are not among the first ten texts that a search finds."""
    return [kind for kind, (query, text) in NEEDLES.items() if not any(text in found for found in find(query)[:10])]


def index_of(messages: Sequence[Message], prepare: Callable[[Message], str]) -> Callable[[str], list[str]]:
    """Make a bare index with any way to prepare a text."""
    connection = sqlite3.connect(":memory:")
    connection.execute(FTS_DDL)
    connection.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", enumerate(map(prepare, messages)))

    def find(query: str) -> list[str]:
        rows = connection.execute(
            "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid DESC", (parse(query).match_exact(),)
        )
        return [str(messages[row[0]]) for row in rows]

    return find


def test_every_kind_of_needle_is_found(store: Store) -> None:
    store.append(TALK, haystack())
    assert kinds_missed(lambda query: [hit.snippet for hit in hits(store, query)]) == []


def test_an_index_without_tool_arguments_is_caught_by_the_same_check() -> None:
    def without_calls(message: Message) -> str:
        return prepared_text({**message, "tool_calls": []})

    assert kinds_missed(index_of(haystack(), prepared_text)) == []
    assert kinds_missed(index_of(haystack(), without_calls)) == ["tool-call arguments"]


def test_an_index_that_does_not_set_characters_apart_is_caught_by_the_same_check() -> None:
    def as_written(message: Message) -> str:
        return str(message["content"] or message.get("tool_calls"))

    assert {"CJK, long", "CJK, short", "Latin in CJK"} <= set(kinds_missed(index_of(haystack(), as_written)))


@pytest.mark.parametrize("query", ["deployment", "svc-1234-prod-eu", "src/app/main_1.py", "部署"])
def test_the_newest_of_300_comes_first_under_recency(store: Store, query: str) -> None:
    ids = store.append(TALK, [said(f"{n} about {query} again") for n in range(300)])
    found = hits(store, query, sort="recency")
    assert [hit.id for hit in found] == list(reversed(ids))[:10]


def test_what_is_written_alike_comes_before_other_forms(store: Store) -> None:
    first, *_ = store.append(TALK, [said("he was painting"), *(said(f"painted walls {n}") for n in range(20))])
    assert hits(store, "painting")[0].id == first


@pytest.mark.slow
@pytest.mark.parametrize("query", ["/messages", ".env", "--fast", "@deprecated", "$HOME", "C++", "#heading"])
def test_what_is_written_with_marks_is_found_among_many_that_have_the_bare_word(
    store: Store, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    word = query.strip("/.-@$+#")
    first, *_ = store.append(TALK, [said(f"it is {query} here"), *(said(f"{n} {word} elsewhere") for n in range(300))])
    assert hits(store, query)[0].id == first
    # Planted: blocks as small as those of a plain word.
    monkeypatch.setattr("leporello.store.search.hits.LITERAL_BLOCK", BLOCK)
    assert first not in {hit.id for hit in hits(store, query)}


def test_quotes_allow_no_other_form(store: Store) -> None:
    store.append(TALK, [said("he was painting the wall"), *(said(f"painted the walls {n}") for n in range(200))])
    assert [hit.snippet for hit in hits(store, '"painting the wall"')] == ["he was painting the wall"]
    assert [hit.snippet for hit in hits(store, '"painting"', sort="recency")] == ["he was painting the wall"]


def test_the_small_words_inside_quotes_count_too(store: Store) -> None:
    store.append(TALK, [said("mind the gap"), said("mind a gap"), said("gap, the mind"), said("mind gap")])
    assert [hit.snippet for hit in hits(store, '"mind the gap"')] == ["mind the gap"]
    assert [hit.snippet for hit in hits(store, '"mind the gap"', sort="recency")] == ["mind the gap"]


def test_all_words_are_wanted_and_any_of_them_if_no_message_has_all(store: Store) -> None:
    store.append(TALK, [said("red apple"), said("green pear"), said("red pear"), said("red plum")])
    assert [hit.snippet for hit in hits(store, "red pear")] == ["red pear"]
    assert {hit.snippet for hit in hits(store, "green plum")} == {"green pear", "red plum"}
    assert hits(store, "green-plum") == ()


def test_excluded_words(store: Store) -> None:
    store.append(TALK, [said("red apple"), said("red pear")])
    assert [hit.snippet for hit in hits(store, "red -apple")] == ["red pear"]


def test_filters_in_the_query(store: Store) -> None:
    store.append(
        TALK,
        [
            said("build it", name="Ann", timestamp="2026-01-01T10:00:00+00:00"),
            said("build it", "assistant", timestamp="2026-01-02T10:00:00+00:00"),
            said("build it", name="Bob", timestamp="2026-01-03T10:00:00+00:00"),
        ],
    )
    assert [hit.name for hit in hits(store, "build role:user")] == ["Bob", "Ann"]
    assert [hit.name for hit in hits(store, "build name:ann")] == ["Ann"]
    assert [hit.role for hit in hits(store, "build since:2026-01-02 until:2026-01-02")] == ["assistant"]
    assert [hit.name for hit in hits(store, "role:user until:2026-01-01")] == ["Ann"]


def test_filters_alone_list_the_newest_first(store: Store) -> None:
    ids = store.append(TALK, [said(f"number {n}") for n in range(30)])
    page = search(store, "role:user", filter=SearchFilter(conversation=TALK))
    assert [hit.id for hit in page.hits] == list(reversed(ids))[:10]
    rest = search(store, "role:user", filter=SearchFilter(conversation=TALK), cursor=page.cursor, limit=30)
    assert [hit.id for hit in rest.hits] == list(reversed(ids))[10:]
    assert rest.cursor is None


def test_a_question_finds_the_answer_beside_its_words(store: Store) -> None:
    """The answer has none of the question's words; a search without neighbours cannot find it."""
    story = [
        said("Where do you keep the spare keys of the cellar?"),
        said("On the shelf, behind the clock.", "assistant"),
    ]
    ids = store.append(TALK, [*noise(60), *story, *noise(60, seed=2)])
    question = "Where are the spare cellar keys?"
    assert ids[61] in [hit.id for hit in hits(store, question)][:4]
    alone = store.candidates(
        parse(question).match_natural(), filter=SearchFilter(conversation=TALK), limit=300, newest_first=False
    )
    assert ids[61] not in {candidate.id for candidate in alone.found}


def test_a_named_speaker_is_preferred(store: Store) -> None:
    said_by = [said("I painted the garden wall", name=name) for name in ("Ann", "Bob", "Ann", "Bob", "Bob")]
    store.append(TALK, said_by)
    assert [hit.name for hit in hits(store, "What did Ann paint in the garden?")][:2] == ["Ann", "Ann"]
    assert [hit.name for hit in hits(store, "What did Bob paint in the garden?")][:3] == ["Bob"] * 3


def test_a_named_date_is_preferred(store: Store) -> None:
    days = ["2026-01-05", "2026-02-05", "2026-02-07", "2025-02-07"]
    store.append(TALK, [said("we met at the lake", timestamp=f"{day}T10:00:00+00:00") for day in days])
    found = hits(store, "Who met at the lake on 7 February 2026?")
    assert found[0].time == datetime(2026, 2, 7, 10, tzinfo=UTC).timestamp()


def pages(store: Store, text: str, *, between: Callable[[], object] = lambda: None, **options: object) -> list[Hit]:
    found: list[Hit] = []
    cursor = None
    while True:
        page = search(store, text, filter=SearchFilter(conversation=TALK), cursor=cursor, **options)  # type: ignore[arg-type]
        found += page.hits
        cursor = page.cursor
        if cursor is None:
            return found
        between()


@pytest.mark.slow
@pytest.mark.parametrize("sort", ["relevance", "recency"])
@pytest.mark.parametrize("query", ["deployment", "deployment fails", '"deployment fails"', "+deployment"])
def test_pages_hold_every_hit_once_while_messages_arrive(store: Store, query: str, sort: str) -> None:
    ids = store.append(TALK, [said(f"{'+' * (n % 3)}deployment fails {'again ' * (n % 7)}{n}") for n in range(130)])
    found = pages(store, query, sort=sort, limit=11, between=lambda: store.append(TALK, [said("deployment fails now")]))
    assert sorted(hit.id for hit in found) == sorted(ids)
    assert [hit.rank for hit in found] == list(range(1, 131))


@pytest.mark.slow
@pytest.mark.parametrize("sort", ["relevance", "recency"])
def test_pages_hold_every_hit_of_a_tree_once(store: Store, monkeypatch: pytest.MonkeyPatch, sort: str) -> None:
    """What siblings say alike is left out of what was fetched, and what is older than it is found all the same."""
    early = [said(f"deployment {n}") for n in range(60)]
    fork = store.append(TALK, [*early, said("go on")])[-1]
    again = [said("go on"), *(said(f"deployment again {n}") for n in range(40))]
    store.append(TALK, again[1:])
    for _ in range(2):
        store.append(TALK, again, branch=store.fork(TALK, before=fork, branch=1))
    every = {str(each["content"]) for each in [*early, *again[1:]]}
    found = pages(store, "deployment", sort=sort)
    assert len(found) == len(every)
    assert {hit.snippet for hit in found} == every
    whole = type(store).candidates

    def careless(*arguments: object, limit: int, **options: object) -> object:
        """Take fewer hits than were asked for as all of them."""
        some = whole(*arguments, limit=limit, **options)  # type: ignore[arg-type]
        return replace(some, full=len(some.found) >= limit)

    monkeypatch.setattr(type(store), "candidates", careless)
    assert len(pages(store, "deployment", sort=sort)) < len(every)


def test_what_stands_only_inside_other_words_is_no_quoted_phrase(store: Store) -> None:
    store.append(TALK, [said("Mind the gapless wall, mind the gap"), said("mind the gapless wall, mind a gap")])
    assert [hit.snippet for hit in hits(store, '"mind the gap"')] == ["Mind the gapless wall, mind the gap"]


def test_pages_of_a_question_hold_every_hit_once_while_messages_arrive(store: Store) -> None:
    ids = store.append(TALK, [said(f"deployment number {n} {'fails ' * (n % 5)}") for n in range(60)])
    found = pages(store, "why did the deployment fail?", between=lambda: store.append(TALK, [said("deployment fails")]))
    assert sorted(hit.id for hit in found) == sorted(ids)


def test_a_cursor_belongs_to_its_search(store: Store) -> None:
    store.append(TALK, [said(f"deployment {n}") for n in range(30)])
    cursor = search(store, "deployment").cursor
    with pytest.raises(QueryError, match="another search"):
        search(store, "other", cursor=cursor)


@given(st.text(min_size=1, max_size=30))
@settings(max_examples=30)
def test_a_broken_cursor_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="cursor"):
        search(open_store(":memory:"), "x", cursor=text)


@pytest.mark.parametrize("limit", [0, -1, 201])
def test_a_wrong_limit_is_refused(store: Store, limit: int) -> None:
    with pytest.raises(QueryError, match="from 1 to 200"):
        search(store, "x", limit=limit)


def test_a_wrong_sort_is_refused(store: Store) -> None:
    with pytest.raises(QueryError, match="'relevance' or 'recency'"):
        search(store, "x", sort="best")  # type: ignore[arg-type]


def test_regular_expressions(store: Store) -> None:
    ids = store.append(TALK, [said("error 404 here"), said("error none"), said("ERROR 500 there")])
    found = search(store, r"^error \d+", filter=SearchFilter(conversation=TALK), regex=True)
    assert [hit.id for hit in found.hits] == [ids[2], ids[0]]
    assert found.complete
    assert found.cursor is None


def test_regular_expressions_page_through_several_conversations(store: Store) -> None:
    for key in ("one", "two"):
        store.ensure(key)
        store.append(key, [said(f"{key} {n}") for n in range(70)])
    found: list[str] = []
    cursor = None
    while True:
        page = search(store, r"\d$", regex=True, limit=33, cursor=cursor)
        found += [hit.snippet for hit in page.hits]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(found) == sorted(f"{key} {n}" for key in ("one", "two") for n in range(70))


@pytest.mark.slow
def test_an_expression_that_never_ends_is_stopped(store: Store) -> None:
    store.append(TALK, [said("a" * 60 + "!")])
    found = search(store, r"(a|aa)+$", regex=True, seconds=0.5)
    assert found.hits == ()
    assert not found.complete


def test_what_an_expression_found_in_time_is_shown(store: Store) -> None:
    store.append(TALK, [said("a" * 60 + "!"), said("aaa")])
    found = search(store, r"(a|aa)+$", regex=True, seconds=0.5)
    assert ([hit.snippet for hit in found.hits], found.complete) == (["aaa"], False)


def test_a_broken_expression_is_refused(store: Store) -> None:
    with pytest.raises(QueryError, match="cannot be read"):
        search(store, "(", regex=True)


def test_a_needle_at_the_end_of_a_long_message_is_shown(store: Store) -> None:
    store.append(TALK, [said("lorem ipsum " * 20_000 + "needle_42 the end")])
    assert "needle_42" in hits(store, "needle_42")[0].snippet


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@example("ก ำกำ")  # a letter that folds into two
@given(st.text(max_size=30))
@pytest.mark.postgresql_soak
def test_any_text_can_be_searched_for(text: str) -> None:
    store = open_store(":memory:")
    store.append(TALK, [said("one two three"), said(text)])
    for sort in ("relevance", "recency"):
        hits(store, text, sort=sort)
    store.close()


def candidates() -> list[Candidate]:
    plain = Candidate(
        id="", conversation="c", seq=0, place=0.0, role="user", name="", tool="", time=0.0, score=0.0, text=""
    )
    chance = random.Random(5)
    words = ["paint", "garden", "wall", "lake", "boat", "summer", "tree", "house"]
    return [
        replace(
            plain,
            id=f"m{n}",
            seq=n,
            place=float(n),
            name=chance.choice(["Ann", "Bob"]),
            time=n * 600.0,
            text=" ".join(chance.choices(words, k=chance.randrange(1, 9))),
        )
        for n in range(1, 60)
    ]


@pytest.mark.slow
@given(st.randoms(use_true_random=False), st.booleans())
def test_the_order_does_not_depend_on_the_order_of_the_candidates(chance: random.Random, question: bool) -> None:
    statistics = Statistics(messages=60, counts={"paint": 9, "garden": 20, "boat": 3})
    query = parse("What did Ann paint in the garden by the boat?" if question else "paint garden")
    shuffled = candidates()
    chance.shuffle(shuffled)
    expected = [each.candidate.id for each in ranked(query, candidates(), statistics, question=question)]
    assert [each.candidate.id for each in ranked(query, shuffled, statistics, question=question)] == expected


def test_no_candidates_no_hits() -> None:
    statistics = Statistics(messages=0, counts={})
    assert ranked(parse("what is it about?"), [], statistics, question=True) == []
    assert ranked(parse("it"), [], statistics, question=False) == []


def test_the_same_search_gives_the_same_answer(store: Store) -> None:
    store.append(TALK, haystack())
    other = open_store(":memory:", clock=lambda: 1_000_000.0)
    other.append(TALK, haystack())
    for text in ("svc prod", "what is the trace of the migration?", '"retry limit"', "讨论"):
        assert hits(store, text) == hits(store, text) == hits(other, text)
    other.close()
