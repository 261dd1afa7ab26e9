"""The tools: schemas, arguments, answers, budgets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello import LCMEngine
from leporello.engine import normalise_usage
from leporello.errors import NetworkError
from leporello.lcm.tools import SCHEMAS
from leporello.llm import Completion, ScriptedLLM
from leporello.messages import Message
from leporello.prices import cost
from leporello.store import open_store
from leporello.tokens import count_text
from leporello.tool_arguments import checked

Work = Callable[..., list[Message]]
Make = Callable[..., LCMEngine]

ASK: Message = {"role": "user", "content": "And what is next?"}
SECRET = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 5 + "AA"


@pytest.fixture
def engine(make_engine: Make, work: Work) -> LCMEngine:
    engine = make_engine()
    engine.compress([{"role": "system", "content": "s"}, *work(0, 40), ASK])
    return engine


def ask(engine: LCMEngine, name: str, **arguments: Any) -> dict[str, Any]:
    answer = json.loads(engine.handle_tool_call(name, arguments))
    assert isinstance(answer, dict)
    return answer


def test_the_six_tools_are_offered() -> None:
    names = [schema["name"] for schema in LCMEngine(0).get_tool_schemas()]
    assert names == ["lcm_grep", "lcm_describe", "lcm_expand", "lcm_expand_query", "lcm_artifacts", "lcm_status"]
    assert "Search the context knowledge graph" in SCHEMAS[0]["description"]
    assert set(SCHEMAS[0]["parameters"]["properties"]) == {
        "query", "limit", "cursor", "sort", "role", "tool", "since", "until", "conversation", "regex",
    }  # fmt: skip
    json.dumps(SCHEMAS)


class TestScope:
    """What other conversations of the same owner show of themselves."""

    @pytest.fixture
    def two(self, make_engine: Make, work: Work, tmp_path: Path) -> tuple[LCMEngine, LCMEngine]:
        store, config = tmp_path / "store.db", {"scope": "owner"}
        first = make_engine(session="first", store=store, config=config)
        first.compress([*work(0, 40), ASK])
        second = make_engine(session="second", store=store, config=config)
        second.compress([*work(500, 540), ASK])
        return first, second

    @pytest.mark.slow
    def test_a_node_of_another_conversation_unfolds_to_its_own_originals(
        self, two: tuple[LCMEngine, LCMEngine]
    ) -> None:
        first, second = two
        leaf = next(node for node in first.store.nodes("first") if node.covers)
        wanted = ask(first, "lcm_expand", id=leaf.id, max_tokens=100_000)
        assert ask(second, "lcm_expand", id=leaf.id, max_tokens=100_000) == wanted
        assert {entry["conversation"] for entry in wanted["messages"]} == {"first"}
        assert ask(second, "lcm_describe", id=leaf.id)["conversation"] == "first"
        assert ask(second, "lcm_describe", id=wanted["messages"][0]["id"])["conversation"] == "first"

    @pytest.mark.slow
    def test_hits_and_their_nodes_name_their_conversation(self, two: tuple[LCMEngine, LCMEngine]) -> None:
        _, second = two
        answer = ask(second, "lcm_grep", query="needle-0003-x", conversation="*")
        assert [hit["conversation"] for hit in answer["results"]][:1] == ["first"]
        assert answer["nodes"][answer["results"][0]["node"]]["conversation"] == "first"

    @pytest.mark.slow
    def test_with_the_scope_of_one_conversation_others_are_unknown(
        self, two: tuple[LCMEngine, LCMEngine], make_engine: Make, tmp_path: Path
    ) -> None:
        first, _ = two
        alone = make_engine(session="second", store=tmp_path / "store.db")
        for node in first.store.nodes("first"):
            assert "there is no" in ask(alone, "lcm_expand", id=node.id)["error"]
        own = alone.store.nodes("second")[0]
        assert "conversation" not in ask(alone, "lcm_describe", id=own.id)


def test_what_an_answer_cost_is_accounted(make_engine: Make, work: Work) -> None:
    usage = {"input_tokens": 2_000_000, "output_tokens": 1_000_000}
    said = Completion(text="It is [m3].", usage=normalise_usage(usage))
    engine = make_engine(llm=ScriptedLLM(said, model="claude-sonnet-5", provider="anthropic"))
    engine.should_compress_preflight([*work(0, 6), ASK])
    shown = engine.store.window("s")
    assert "answer" in ask(engine, "lcm_expand_query", question="What was the token of step 3?")
    each = cost(usage, "claude-sonnet-5", "anthropic")
    assert ask(engine, "lcm_status")["cost_usd"] == pytest.approx(each)
    assert engine.store.window("s") == shown
    assert engine.store.journal("s")[-1].usage["output_tokens"] == 1_000_000


def test_the_page_names_every_tool_and_argument() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "lcm-tools.md").read_text(encoding="utf-8")
    for tool in SCHEMAS:
        name, parameters = tool["name"], tool["parameters"]
        _, _, section = page.partition(f"## {name}\n")
        section = section.partition("\n## ")[0]
        assert section, name
        for argument in parameters["properties"]:
            assert f"`{argument}`" in section, f"{name}: {argument}"
        examples = [json.loads(code.partition("```")[0]) for code in section.split("```json\n")[1:]]
        assert not examples or checked(name, parameters, examples[0])


class TestGrep:
    """`lcm_grep`."""

    def test_a_folded_turn_is_found_with_the_node_that_covers_it(self, engine: LCMEngine) -> None:
        answer = ask(engine, "lcm_grep", query="needle-0003-x")
        hit = answer["results"][0]
        assert hit.keys() == {"id", "seq", "rank", "node", "role", "name", "time", "snippet"}
        assert "needle-0003-x" in hit["snippet"]
        assert (hit["rank"], hit["role"]) == (1, "assistant")
        assert answer["nodes"][hit["node"]].keys() == {"covers", "time", "hits"}
        assert ask(engine, "lcm_describe", id=hit["node"])["kind"] == "leaf"
        assert "needle-0003-x" in str(ask(engine, "lcm_expand", id=hit["id"]))

    def test_what_is_live_and_not_stored_yet_is_found(self, engine: LCMEngine, work: Work) -> None:
        live = [
            {"role": "system", "content": "s"},
            *work(0, 40),
            ASK,
            {"role": "assistant", "content": "zebra-crossing"},
        ]
        answer = json.loads(engine.handle_tool_call("lcm_grep", {"query": "zebra-crossing"}, messages=live))
        assert answer["results"][0]["node"] is None

    def test_pages_hold_every_hit_once(self, engine: LCMEngine) -> None:
        seen: list[str] = []
        cursor = None
        for _ in range(50):
            answer = ask(engine, "lcm_grep", query="Request", role="user", limit=7, cursor=cursor)
            seen += [hit["id"] for hit in answer["results"]]
            cursor = answer["cursor"]
            if cursor is None:
                break
        assert answer["complete"]
        assert len(seen) == len(set(seen)) == 40

    def test_recency_and_filters(self, engine: LCMEngine) -> None:
        newest = ask(engine, "lcm_grep", query="Request", sort="recency", role="user")["results"]
        assert [hit["seq"] for hit in newest] == sorted((hit["seq"] for hit in newest), reverse=True)
        assert {hit["role"] for hit in newest} == {"user"}
        tools = ask(engine, "lcm_grep", query="module_7", tool="read_file")["results"]
        assert tools
        assert not ask(engine, "lcm_grep", query="Request", until="2001-01-01")["results"]
        assert ask(engine, "lcm_grep", query=r"needle-00[0]4-\w", regex=True)["results"]

    def test_other_conversations_are_out_of_reach_unless_the_scope_allows_them(
        self, make_engine: Make, work: Work
    ) -> None:
        store = open_store(":memory:")
        make_engine(session="other", store=store).compress([*work(0, 40), ASK])
        closed = make_engine(session="mine", store=store)
        assert "lcm.scope" in ask(closed, "lcm_grep", query="needle-0003-x", conversation="other")["error"]
        assert not ask(closed, "lcm_grep", query="needle-0003-x")["results"]
        open_one = make_engine(session="mine", store=store, config={"scope": "owner"})
        for wanted in ("other", "*"):
            assert ask(open_one, "lcm_grep", query="needle-0003-x", conversation=wanted)["results"]
        stranger = LCMEngine(16_000, store=store, config={"scope": "owner"})
        stranger.on_session_start("theirs", owner="somebody else")
        assert not ask(stranger, "lcm_grep", query="needle-0003-x", conversation="*")["results"]


class TestExpand:
    """`lcm_expand` and `lcm_describe`."""

    def test_a_node_unfolds_to_the_originals_word_for_word(self, engine: LCMEngine) -> None:
        stored = {row.id: row.message for row in engine.store.messages("s")}
        for node in engine.store.nodes("s"):
            answer = ask(engine, "lcm_expand", id=node.id, max_tokens=100_000)
            assert answer["complete"]
            assert [entry["message"] for entry in answer["messages"]] == [stored[e["id"]] for e in answer["messages"]]

    @pytest.mark.slow
    @pytest.mark.parametrize("budget", [100, 300, 1_000])
    def test_a_small_budget_is_kept_and_its_cursors_lead_through_everything(
        self, engine: LCMEngine, budget: int
    ) -> None:
        node = engine.store.nodes("s")[0]
        said: dict[str, str] = {}
        cursor = None
        for _ in range(2_000):
            raw = engine.handle_tool_call("lcm_expand", {"id": node.id, "max_tokens": budget, "cursor": cursor})
            answer = json.loads(raw)
            assert count_text(raw) < budget + 250
            for entry in answer["messages"]:
                text = entry["text"] if "text" in entry else str(entry["message"].get("content") or "")
                said[entry["id"]] = said.get(entry["id"], "") + text
            cursor = answer.get("cursor")
            if answer["complete"]:
                break
            assert cursor
        rows = {row.id: row.message for row in engine.store.messages("s")}
        assert len(said) == node.messages
        for name, text in said.items():
            assert str(rows[name].get("content") or "") in text or not rows[name].get("content")

    def test_a_message_and_a_node_say_how_to_go_on(self, engine: LCMEngine) -> None:
        node = engine.store.nodes("s")[0]
        told = ask(engine, "lcm_describe", id=node.id)
        assert told["covers"]["messages"] == node.messages
        assert "lcm_expand" in told["next"]
        message = ask(engine, "lcm_describe", id="m3")
        assert (message["role"], message["node"]) == ("assistant", node.id)
        assert len(message["around"]) >= 3

    def test_a_file_tells_its_whole_story(self, make_engine: Make, work: Work) -> None:
        engine = make_engine()
        turns = work(0, 30)
        write = {"name": "write_file", "arguments": json.dumps({"path": "src/module_2.py", "content": "x = 1"})}
        turns += [
            {"role": "user", "content": "Write it."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "w1", "type": "function", "function": write}],
            },
            {"role": "tool", "tool_call_id": "w1", "content": "file written"},
            {"role": "assistant", "content": "Written."},
        ]
        engine.compress([*turns, ASK])
        story = ask(engine, "lcm_describe", id="file:src/module_2.py")["story"]
        assert [event["what"].split()[0].rstrip(",") for event in story if event["what"] != "named"] == [
            "read",
            "written",
        ]
        assert story[0]["node"] is not None

    def test_secrets_do_not_travel_and_stay_in_the_store(self, make_engine: Make) -> None:
        engine = make_engine()
        said: Message = {"role": "user", "content": f"My key is {SECRET}, keep it."}
        engine.should_compress_preflight([said])
        assert SECRET not in engine.handle_tool_call("lcm_expand", {"id": "m1"})
        assert SECRET not in engine.handle_tool_call("lcm_describe", {"id": "m1"})
        assert SECRET not in engine.handle_tool_call("lcm_grep", {"query": "key"})
        assert [row.message for row in engine.store.messages("s")] == [said]
        open_one = make_engine(session="s2", config={"redact": False})
        open_one.should_compress_preflight([said])
        assert SECRET in open_one.handle_tool_call("lcm_expand", {"id": "m1"})


class TestExpandQuery:
    """`lcm_expand_query`."""

    def test_without_a_model_the_best_passages_come(self, engine: LCMEngine) -> None:
        answer = ask(engine, "lcm_expand_query", question="Which token belongs to step 17?")
        assert any("needle-0017-x" in passage["text"] for passage in answer["passages"])

    def test_the_model_answers_and_cites(self, make_engine: Make, work: Work) -> None:
        llm = ScriptedLLM("The token is needle-0017-x [m72].", context_length=64_000)
        engine = make_engine(llm=llm)
        engine.should_compress_preflight(work(0, 40))
        answer = ask(engine, "lcm_expand_query", question="Which token belongs to step 17?")
        assert "needle-0017-x" in answer["answer"]
        assert "needle-0017-x" in llm.prompts[0]
        assert answer["sources"]

    def test_a_model_that_fails_leaves_the_passages_and_a_note(self, make_engine: Make, work: Work) -> None:
        engine = make_engine(llm=ScriptedLLM(NetworkError("connection refused")))
        engine.should_compress_preflight(work(0, 40))
        answer = ask(engine, "lcm_expand_query", question="Which token belongs to step 17?")
        assert answer["passages"]
        assert "connection refused" in answer["note"]


def test_artifacts_page_through_everything_once(engine: LCMEngine) -> None:
    values: list[tuple[str, str]] = []
    cursor = None
    for _ in range(100):
        answer = ask(engine, "lcm_artifacts", kind="file", limit=9, cursor=cursor)
        values += [(one["value"], one["message"]) for one in answer["artifacts"]]
        cursor = answer["cursor"]
        if answer["complete"]:
            break
    assert len(values) == len(set(values))
    assert {f"src/module_{n}.py" for n in range(40)} <= {value for value, _ in values}


def test_the_status_counts_what_is_stored(engine: LCMEngine) -> None:
    told = ask(engine, "lcm_status")
    assert told["messages"] == 161
    assert told["nodes"] == len(engine.store.nodes("s"))
    assert 0 < told["window_tokens"] < told["threshold_tokens"]
    assert told["last_folds"][0]["tokens_before"] > told["last_folds"][0]["tokens_after"]


class TestWrongArguments:
    """A wrong argument gets an error that says what is right, never an exception."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "arguments", "said"),
        [
            ("lcm_grep", {}, "needs query"),
            ("lcm_grep", {"query": ""}, "query must not be empty"),
            ("lcm_grep", {"query": 3}, "must be a text"),
            ("lcm_grep", {"query": "x", "limit": 201}, "from 1 to 200"),
            ("lcm_grep", {"query": "x", "sort": "best"}, "relevance, recency"),
            ("lcm_grep", {"query": "x", "since": "yesterday"}, "2026-11-15"),
            ("lcm_grep", {"query": "x", "regex": "yes"}, "true or false"),
            ("lcm_grep", {"qery": "x"}, "did you mean query?"),
            ("lcm_grep", {"query": "x", "cursor": "nonsense"}, "cursor"),
            ("lcm_grep", {"query": "(", "regex": True}, ""),
            ("lcm_describe", {"id": "x1"}, "n12"),
            ("lcm_describe", {"id": "file:never/seen.py"}, "lcm_artifacts"),
            ("lcm_expand", {"id": "m99999"}, "lcm_grep finds ids"),
            ("lcm_expand", {"id": "m2", "cursor": "m3:0"}, "another answer"),
            ("lcm_expand", {"id": "m2", "max_tokens": 1}, "from 100"),
            ("lcm_artifacts", {"kind": "thing"}, "file, command"),
            ("lcm_artifacts", {"cursor": "abc"}, "cursor"),
            ("lcm_status", {"x": 1}, "no arguments"),
            ("lcm_nothing", {}, "Unknown tool: lcm_nothing"),
        ],
    )
    def test_the_error_names_what_is_right(
        self, engine: LCMEngine, name: str, arguments: dict[str, Any], said: str
    ) -> None:
        assert said in ask(engine, name, **arguments)["error"]

    @pytest.mark.slow
    @settings(max_examples=60, deadline=None)
    @given(
        st.sampled_from([schema["name"] for schema in SCHEMAS]),
        st.dictionaries(
            st.sampled_from(["query", "id", "limit", "cursor", "question", "kind", "max_tokens", "sort", "since", "x"]),
            st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats() | st.lists(st.text()),
        )
        | st.text(),
    )
    def test_anything_is_answered_with_json(self, name: str, arguments: Any) -> None:
        engine = LCMEngine(16_000)
        engine.should_compress_preflight([ASK])
        assert isinstance(json.loads(engine.handle_tool_call(name, arguments)), dict)
