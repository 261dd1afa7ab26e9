"""A host that forgot begins a new root: an empty window, and tools that still find everything, with its branch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from leporello import LCMEngine
from leporello.lcm import artifacts, preparation, verify
from leporello.lcm.artifacts import ArtifactTrail
from leporello.lcm.tools.reader import Reader
from leporello.llm import ScriptedLLM
from leporello.messages import Message
from leporello.store import open_store
from leporello.store.relational import messages as ingesting
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from pathlib import Path

    from leporello.store.protocol import Store
    from leporello.testing.manual_executor import ManualExecutor

pytestmark = pytest.mark.slow

Work = Callable[..., list[Message]]
Make = Callable[..., LCMEngine]
SYSTEM: Message = {"role": "system", "content": "You are a careful engineer."}
ASK: Message = {"role": "user", "content": "And what is next?"}


def folded(engine: LCMEngine, listed: list[Message]) -> list[Message]:
    """Hand a list over as a host does, and fold it."""
    listed = [SYSTEM, *listed, ASK]
    engine.should_compress_preflight(listed)
    return engine.compress(listed, current_tokens=count_messages(listed), force=True)


@pytest.fixture
def two_roots(tmp_path: Path, make_engine: Make, work: Work) -> LCMEngine:
    """An engine on the second root of a conversation, both folded; the process that folded the first is gone."""
    first = make_engine(store=tmp_path / "s.db")
    folded(first, work(0, 40))
    assert first.store.nodes("s")
    first._stores.close()
    second = make_engine(store=tmp_path / "s.db")
    folded(second, work(100, 140))
    return second


def check_window(engine: LCMEngine) -> None:
    """The window of the second root tells nothing of the first, and both are covered."""
    store = engine.store
    assert [(branch.id, branch.parent, branch.head) for branch in store.branches("s")] == [
        (1, None, False),
        (2, None, True),
    ]
    own = {row.seq for row in store.messages("s", branch=2)}
    nodes = store.nodes("s", branch=2)
    assert nodes
    for node in nodes:
        assert {seq for cover in node.covers for seq in range(cover.first_seq, cover.last_seq + 1)} <= own
    assert verify(store, "s") == []


def test_the_window_of_a_new_root_begins_empty(two_roots: LCMEngine) -> None:
    check_window(two_roots)


def test_planted_a_root_behind_the_head_has_the_old_blocks_in_its_window(
    tmp_path: Path, make_engine: Make, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "begin_root", lambda _, found, __: found.head)
    engines = [make_engine(store=tmp_path / "s.db") for _ in range(2)]
    folded(engines[0], work(0, 40))
    folded(engines[1], work(100, 140))
    with pytest.raises(AssertionError):
        check_window(engines[1])


def ask(engine: LCMEngine, tool: str, **arguments: Any) -> Any:
    return json.loads(engine.handle_tool_call(tool, arguments))


def check_recall(engine: LCMEngine) -> None:
    """Every tool finds what was said on the first root, and says that it is on branch 1; on the second it says none."""
    old, new = (ask(engine, "lcm_grep", query=f"needle-{n}-x")["results"][0] for n in ("0007", "0107"))
    assert (old.get("branch"), new.get("branch")) == (1, None)
    assert old["node"] is not None
    assert new["node"] is not None
    for id_, branch in ((old["id"], 1), (old["node"], 1), (new["id"], None), (new["node"], None)):
        assert ask(engine, "lcm_describe", id=id_).get("branch") == branch
        expanded = ask(engine, "lcm_expand", id=id_, max_tokens=20_000)["messages"]
        assert {message.get("branch") for message in expanded} == {branch}
    assert ask(engine, "lcm_describe", id=old["id"])["node"] == old["node"]
    passage = ask(engine, "lcm_expand_query", question="Which step has needle-0007-x?")["passages"][0]
    assert (passage["id"], passage["branch"]) == (old["id"], 1)
    for n, branch in ((39, 1), (139, None)):
        found = ask(engine, "lcm_artifacts", kind="file", query=f"src/module_{n}.py")["artifacts"]
        assert found
        assert {entry.get("branch") for entry in found} == {branch}
        story = ask(engine, "lcm_describe", id=f"file:src/module_{n}.py")["story"]
        assert {entry.get("branch") for entry in story} == {branch}


def test_the_tools_find_everything_of_another_root_and_say_which(two_roots: LCMEngine) -> None:
    check_recall(two_roots)


@pytest.mark.parametrize(
    ("of", "name", "defect"),
    [
        (Reader, "branch", lambda *_: {}),
        (ArtifactTrail, "_gather_beside", lambda *_: 0),
        (Reader, "leaves", lambda self, found: self._branch.store.covering([id_ for id_, _ in found])),
    ],
    ids=["no branch", "artifacts of the head alone", "leaves of the head alone"],
)
def test_planted_a_tool_that_knows_the_head_alone(
    two_roots: LCMEngine, monkeypatch: pytest.MonkeyPatch, of: Any, name: str, defect: Any
) -> None:
    monkeypatch.setattr(of, name, defect)
    with pytest.raises((AssertionError, KeyError)):
        check_recall(two_roots)


def trail_of(store: Store, work: Work) -> int:
    """Gather again and again while a root that was left ends with an open call; return how many groups were read."""
    read = 0
    whole = artifacts._of_group

    def counted(group: Any) -> Any:
        nonlocal read
        read += 1
        return whole(group)

    store.ingest("s", work(0, 3)[:-2])
    store._readings.clear()  # type: ignore[attr-defined]
    trail = ArtifactTrail(lambda: store, "s", "")
    listed: list[Message] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifacts, "_of_group", counted)
        for n in range(100, 120):
            listed += work(n, n + 1)
            store.ingest("s", listed)
            trail.catch_up()
    values = {found.value for _, found in store.artifacts("s", limit=500)}
    assert {"src/module_0.py", "src/module_2.py", "src/module_119.py"} <= values
    return read


def test_a_call_that_was_left_open_on_another_root_is_gathered_once(work: Work) -> None:
    assert trail_of(open_store(":memory:"), work) < 4 * 23


def test_planted_a_trail_that_waits_for_it_reads_everything_again(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ArtifactTrail._gather_beside

    def from_the_first(self: ArtifactTrail, store: Store, first: int) -> int:
        return whole(self, store, 1)

    monkeypatch.setattr(ArtifactTrail, "_gather_beside", from_the_first)
    assert trail_of(open_store(":memory:"), work) >= 4 * 23


GOOD = "## Goal\nFix the build.\n\n## Progress\n### Done\n- Read src/app.py." + "".join(
    f"\n- Read src/part_{n}.py and put its value {n * 37} in order." for n in range(12)
)


def mixed_groups(tmp_path: Path, make_engine: Make, work: Work, background: ManualExecutor) -> list[tuple[int, ...]]:
    """Prepare nodes on two roots one after the other; return the branches that each prepared group stands on."""
    for first in (0, 100):
        engine = make_engine(store=tmp_path / "s.db", llm=ScriptedLLM(GOOD), config={"fan_in": 3})
        listed: list[Message] = [SYSTEM]
        for n in range(first, first + 40):
            listed = [*listed, *work(n, n + 1)]
            engine.update_from_response({"prompt_tokens": count_messages(listed), "completion_tokens": 1})
            engine.should_compress_preflight(listed)
            engine._preparation._room = 1
            background.run()
        engine._stores.close()
    store = open_store(tmp_path / "s.db")
    nodes = {node.id: node for node in store.prepared_nodes("s")}
    begins = {id_: store.get([node.meta["begins"]]) for id_, node in nodes.items()}
    branch = {id_: next(iter(rows.values())).branch for id_, rows in begins.items()}
    return [
        tuple(branch[child] for child in node.children if child in branch) for node in nodes.values() if node.children
    ]


def test_nodes_of_two_roots_are_not_condensed_together(
    tmp_path: Path, make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    groups = mixed_groups(tmp_path, make_engine, work, background)
    assert any(2 in group for group in groups)
    assert all(len(set(group)) == 1 for group in groups)


def test_planted_what_is_prepared_on_any_root_is_condensed(
    tmp_path: Path, make_engine: Make, work: Work, background: ManualExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "on_path", lambda _, nodes: list(nodes))
    groups = mixed_groups(tmp_path, make_engine, work, background)
    assert not any(2 in group for group in groups) or not all(len(set(group)) == 1 for group in groups)
