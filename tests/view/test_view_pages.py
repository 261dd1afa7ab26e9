"""What the pages tell: titles, hits, parts, folds, costs, branches, summaries, artifacts; and what they can change."""

from __future__ import annotations

import logging
import re
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.fixtures.view import client_of, parsed

from leporello.config import Config
from leporello.prices import cost_at, price_of
from leporello.proof.savings import savings_by_row, savings_of
from leporello.session import Session
from leporello.store import FOLD, open_store
from leporello.view import costs
from leporello.view.actions import Actions
from leporello.view.charts import stacked
from leporello.view.demo import CONVERSATION
from leporello.view.text import dollars, marked, number, path_end, preview, prose, short
from leporello.view.tree import mapped
from leporello.view.windows import window_now

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.testclient import TestClient

    from leporello.store import ConversationInfo, Node, Store

FRAGMENT = {"hx-request": "true"}


def seen(page: TestClient, path: str, **headers: str) -> str:
    answer = page.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    return parsed(answer.text).text


def info_of(store: Store, key: str = CONVERSATION) -> ConversationInfo:
    info = store.info(key)
    assert info is not None
    return info


def test_the_list_names_conversations_by_title_or_first_request(demo: Store, page: TestClient) -> None:
    told = seen(page, "/view")
    assert "Harbour: the nightly import and other repairs" in told
    assert "Webhooks to partner terminals fail about every tenth time." in told
    assert "lcm" in told
    assert "open" in told
    assert number(info_of(demo).messages) in told
    assert "Webhooks" not in seen(page, "/view?state=ended")
    assert "nightly" not in seen(page, "/view?state=open")


def test_a_search_marks_its_hits_and_leads_to_the_message(page: TestClient) -> None:
    answer = parsed(page.get("/view/search?q=advisory+lock").text)
    assert [values for tag, values in answer.tags if tag == "mark"]
    place = next(one for one in answer.addresses() if one.startswith("/view/message?"))
    assert "advisory lock 7741" in seen(page, place)
    assert "Nothing was found" in seen(page, "/view/search?q=zyxwvut")
    assert 'role="alert"' in page.get("/view/search?q=lock&cursor=nonsense").text


def reached(page: TestClient, address: str) -> set[str]:
    """Return the messages that are reached through the addresses of the page, from a fragment on."""
    waiting, asked, found = [address], set[str](), set[str]()
    while waiting:
        address = waiting.pop()
        if address in asked:
            continue
        asked.add(address)
        for one in parsed(page.get(address, headers=FRAGMENT).text).addresses():
            if one.startswith(("/view/node?", "/view/originals?")) and "only=" not in one:
                waiting.append(one)
            elif one.startswith("/view/message?"):
                found.update(re.findall(r"id=(m\d+)", one))
    return found


def test_a_folded_block_opens_down_to_the_original_words(
    demo: Store, page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = next(one for one in window_now(demo, info_of(demo)).entries if one.nodes)
    covers = [cover for id_ in entry.nodes for cover in demo.covered(id_).covers]
    seqs = {seq for cover in covers for seq in range(cover.first_seq, cover.last_seq + 1)}
    folded = {row.id for row in demo.messages(CONVERSATION) if row.seq in seqs}
    address = f"/view/entry?c={CONVERSATION}&index={entry.index}"
    assert len(folded) > 200
    assert reached(page, address) >= folded

    node = demo.node

    def childless(id_: str, *, owner: str) -> Node | None:
        found = node(id_, owner=owner)
        return replace(found, children=()) if found else None

    monkeypatch.setattr(demo, "node", childless)
    assert not reached(page, address) >= folded


def test_a_summary_without_nodes_leads_to_what_was_said_before_it(demo: Store, page: TestClient) -> None:
    key = "harbour-webhooks"
    window = window_now(demo, info_of(demo, key))
    entry = next(one for one in window.entries if one.part == "summary" and one.tokens > 60)
    shown = {id_ for one in window.entries for id_ in one.ids}
    folded = {row.id for row in demo.messages(key)} - shown
    assert len(folded) > 20
    assert reached(page, f"/view/entry?c={key}&index={entry.index}") >= folded


def test_a_request_after_a_fold_says_why_its_window_is_another(demo: Store, page: TestClient) -> None:
    fold = demo.journal(CONVERSATION, reason=FOLD)[0]
    told = seen(page, f"/view/time?c={CONVERSATION}&at={fold.number + 1}")
    assert f"Fold #{fold.number}: the window is filling" in told
    assert "The prefix moved: compaction" in told
    assert number(fold.report["tokens_after"]) in told
    quiet = seen(page, f"/view/time?c={CONVERSATION}&at={fold.number - 1}")
    assert "Prefix kept: grew" in quiet
    assert "Fold #" not in quiet


def test_a_request_tells_what_was_asked_and_what_was_answered(demo: Store, page: TestClient) -> None:
    """The answer is what the branch holds behind the request; on the undone branch it is the one that was undone."""
    told = seen(page, f"/view/time?c={CONVERSATION}&at=40")
    assert "The user askedm44 Thanks. Two containers were assigned to berth B-17" in told
    assert "The model answeredm83 Done. The allocator reads the free berths" in told
    assert "What changed since the step before" in told
    undone, again = demo.journal(CONVERSATION, reason="request", last=2)
    assert "answeredm325 I tag 2.4.0" in seen(page, f"/view/time?c={CONVERSATION}&at={undone.number}")
    assert "answeredm327 The release notes" in seen(page, f"/view/time?c={CONVERSATION}&at={again.number}")
    fold = demo.journal(CONVERSATION, reason=FOLD)[0]
    assert "The model answered" not in seen(page, f"/view/time?c={CONVERSATION}&at={fold.number}")


def test_a_conversation_without_a_word_and_one_without_a_request_say_so() -> None:
    with closing(open_store(":memory:")) as store:
        store.append("begun", [{"role": "system", "content": "You are careful."}])
        store.append("imported", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}])
        client = client_of(store)
        for name in ("begun", "imported"):
            for path in ("time", "cost"):
                assert "Nothing of this conversation was sent" in seen(client, f"/view/{path}?c={name}")
            assert "Nothing was folded" in seen(client, f"/view/dag?c={name}")
            assert "Nothing is in the trail" in seen(client, f"/view/artifacts?c={name}")
        assert "hello" in seen(client, "/view/window?c=imported")
        assert "No conversation is like this" in seen(client, "/view?state=branched")
        store.append("begun", [{"role": "user", "content": "hi"}])
        assert "No conversation is like this" not in seen(client, "/view?state=open")


def test_the_figures_of_the_cost_page_are_those_of_the_journal(demo: Store, page: TestClient) -> None:
    rows = demo.journal(CONVERSATION)
    requests = [row for row in rows if row.reason == "request"]
    run = costs.course(demo, info_of(demo))
    assert len(run.points) == len(requests)
    assert run.total("cached") == sum(row.usage["cache_read_tokens"] for row in requests)
    assert run.cost_usd == pytest.approx(sum(row.cost_usd or 0 for row in rows))
    assert {point.row.number for point in run.moves} == {fold.number + 1 for fold in run.folds}
    assert run.other_moves == []
    assert [(why, times) for why, times, _ in run.causes] == [("compaction", len(run.folds))]
    for point in run.points:
        assert abs(sum(point.parts.values()) - point.row.usage["prompt_tokens"]) <= 8
    told = seen(page, f"/view/cost?c={CONVERSATION}")
    assert f"Spent{dollars(run.cost_usd)}" in told
    last = run.fold_costs[0]
    behind = next(row for row in requests if row.number > last.row.number)
    price = price_of(behind.report["model"], behind.report["provider"])
    assert price is not None
    cached = {**behind.usage, "cache_read_tokens": behind.usage["prompt_tokens"], "cache_write_tokens": 0}
    assert last.cost_usd == pytest.approx((behind.cost_usd or 0) - cost_at(cached, price))
    assert f"The last of {len(run.folds)} folds cost{dollars(last.cost_usd)}" in told
    assert page.get(f"/view/cost?c={CONVERSATION}").text.count("fold-dot") == 2 * len(run.folds)


def test_savings_and_files_read_again_stand_beside_the_costs(demo: Store, page: TestClient) -> None:
    told = seen(page, f"/view/cost/savings?c={CONVERSATION}", **FRAGMENT)
    saved = savings_of(demo, info_of(demo))
    assert f"Folding saved {dollars(saved.folding_saved_usd)}" in told
    assert re.search(r"src/harbour/webhooks/retry\.py ?#86 ?m182 ?no, the window still held all 4 values", told)
    total, places = costs.spending(savings_by_row(demo, info_of(demo)))
    assert total == saved
    assert places[-1].spent == pytest.approx(saved.cost_usd)
    assert places[-1].unfolded == pytest.approx(saved.unfolded_usd)


def test_forks_are_labelled(demo: Store, page: TestClient) -> None:
    branches, left_out = mapped(demo, info_of(demo))
    assert [(one.info.id, one.why) for one in branches] == [(1, "the beginning"), (2, "side question"), (3, "undone")]
    assert left_out == 0
    told = seen(page, f"/view/tree?c={CONVERSATION}&first=1&second=3")
    assert "I tag 2.4.0" in told
    assert "only in 3" in told


def test_regenerated_and_edited_turns_are_told_apart() -> None:
    with closing(open_store(":memory:")) as store:
        said: list[Any] = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": "first question"},
            {"role": "assistant", "content": "first answer"},
        ]
        ids = store.append("c", said)
        again = store.fork("c", behind=ids[2])
        store.append("c", [{"role": "assistant", "content": "another answer"}], branch=again)
        edited = store.fork("c", behind=ids[1], branch=1)
        store.append("c", [{"role": "user", "content": "another question"}], branch=edited)
        assert {one.info.id: one.why for one in mapped(store, info_of(store, "c"))[0]} == {
            1: "the beginning",
            again: "regenerated",
            edited: "edited",
        }


def overlapping(blocks: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Return the places of blocks that hide others."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for one in blocks:
        rows.setdefault(one["y"], []).append((float(one["x"]), float(one["x"]) + float(one["width"])))
    pairs = [(y, *pair) for y, row in rows.items() for pair in pairwise(sorted(row))]
    return [(y, f"{first} {second}") for y, first, second in pairs if first[1] > second[0] + 1]


def test_every_summary_is_drawn_and_every_artifact_has_its_story(demo: Store, page: TestClient) -> None:
    condensed = next(node.id for node in demo.nodes(CONVERSATION) if node.children)
    drawn = parsed(page.get(f"/view/dag?c={CONVERSATION}&node={condensed}").text)
    blocks = [values for tag, values in drawn.tags if tag == "rect" and "height" in values and "x" in values]
    blocks = [values for values in blocks if float(values["height"]) > 20]
    assert len(blocks) == len(demo.nodes(CONVERSATION)) > 30
    window = window_now(demo, info_of(demo))
    standing = [values for values in blocks if "standing" in values["class"]]
    assert len(standing) == sum(len(entry.nodes) for entry in window.entries)
    assert any(one.startswith("/view/node?") and one.endswith(f"id={condensed}") for one in drawn.addresses())
    assert overlapping(blocks) == []
    assert overlapping([*blocks, blocks[0]]) != []
    told = seen(page, f"/view/artifacts?c={CONVERSATION}&kind=error")
    assert "AssertionError: assert {'B-17': 2} == {'B-17': 1}" in told
    assert "CHANGELOG.md" in seen(page, f"/view/artifacts?c={CONVERSATION}&kind=file&q=CHANGELOG")


@pytest.mark.parametrize(
    "path",
    ["window?c=no", "time?c=no", "entry?c=harbour&index=9999", "node?c=harbour&id=n9999", "message?c=harbour&id=x"],
)
def test_what_is_not_there_is_told(page: TestClient, path: str) -> None:
    answer = page.get(f"/view/{path}")
    assert answer.status_code == 404
    assert "There is no such" in answer.text


# what changes something


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Store, TestClient]]:
    with closing(open_store(":memory:")) as store:
        options: dict[str, Any] = {"store": store, "engine": "compressor", "llm": None, "config": {}}
        with Session.open("c", model="gpt-5.5", provider="openai", context_length=30_000, **options) as session:
            for turn in range(30):
                session.add({"role": "user", "content": f"question {turn} " + "about the harbour " * 40})
                session.request()
                message = {"role": "assistant", "content": f"answer {turn} " + "of the harbour master " * 40}
                session.record({"choices": [{"message": message}], "usage": {"prompt_tokens": 300 * turn + 100}})
        yield store, client_of(store, actions=Actions(store=store, config=Config.coerce({})))


def token(client: TestClient, what: str, **query: str) -> str:
    html = client.get("/view/act", params={"c": "c", "what": what, **query}).text
    return next(v["value"] for tag, v in parsed(html).tags if tag == "input" and v.get("name") == "csrf")


def act(client: TestClient, csrf: str, what: str, path: str = "act", **form: str) -> Any:
    return client.post(f"/view/{path}?c=c", data={"csrf": csrf, "what": what, **form})


def test_actions_need_a_token_and_are_logged(
    changed: tuple[Store, TestClient], caplog: pytest.LogCaptureFixture
) -> None:
    store, client = changed
    csrf = token(client, "delete")
    other = client_of(store, actions=Actions(store=store, config=Config.coerce({})))
    for wrong in ("", "x", token(other, "delete")):
        for what, path in (("delete", "act"), ("fold", "act"), ("pin", "act"), ("export", "export")):
            assert act(client, wrong, what, path, id="m1").status_code == 403
    foreign = client.post(
        "/view/act?c=c", data={"csrf": csrf, "what": "delete"}, headers={"origin": "http://e.example"}
    )
    assert foreign.status_code == 403
    assert store.info("c") is not None
    assert store.pins("c") == ()
    assert store.journal("c", reason=FOLD) == []

    with caplog.at_level(logging.WARNING):
        assert act(client, csrf, "pin", id="m1").status_code == 200
        assert store.pins("c") == ("m1",)
        assert act(client, csrf, "unpin", id="m1").status_code == 200
        assert store.pins("c") == ()
        assert len(act(client, csrf, "export", "export").text.splitlines()) > 60
        assert "folded" in act(client, csrf, "fold", focus="the harbour").text
        assert len(store.journal("c", reason=FOLD)) == 1
        assert act(client, csrf, "delete").status_code == 200
    assert store.info("c") is None
    noted = [line for line in caplog.messages if line.startswith("page, by this machine")]
    words = ("stays in every window", "no longer pinned", "exported", "folded", "deleted")
    assert [next(word for word in words if word in line) for line in noted] == list(words)


def test_without_actions_the_page_only_reads() -> None:
    with closing(demo_store_of_one()) as store:
        client = client_of(store)
        assert "only reads" in client.get("/view").text
        assert client.get("/view/act?c=c&what=delete").status_code == 403
        assert act(client, "", "delete").status_code == 403
        assert store.info("c") is not None


def demo_store_of_one() -> Store:
    store = open_store(":memory:")
    store.append("c", [{"role": "user", "content": "hi"}])
    return store


# small things


def test_texts_and_figures_are_written_for_people() -> None:
    assert [short(one) for one in (None, 950, 12_400, 1_500_000)] == ["–", "950", "12.4K", "1.5M"]
    assert [dollars(one) for one in (None, 0, 0.0015, 1.5, -2)] == ["–", "$0.00", "$0.0015", "$1.50", "−$2.00"]
    assert marked("the Lock of locks", "lock") == [("the ", False), ("Lock", True), (" of ", False), ("locks", True)]
    assert preview("a  b\nc") == "a b c"
    assert preview("word " * 500, 20) == "word word word…"
    assert preview("w" * 500, 20) == "w" * 19 + "…"
    assert path_end("src/a.py") == "src/a.py"
    assert path_end("/home/ann/projects/harbour/src/berths/allocator.py", 30) == "…/src/berths/allocator.py"
    assert path_end("x" * 50, 10) == "…" + "x" * 9
    assert prose("## Goal\n\n- one\ntwo") == [("head", "Goal"), ("item", "- one"), ("line", "two")]
    assert stacked([], [], ("a",), label="nothing") == ""
