"""The tools of the lossless engine: the processor time of each, in a short conversation and in a very long one.

Regular expressions and questions to a model aside, a tool takes at most 50 ms at 100,000 messages. Printed are the
milliseconds of processor time (the median of several calls) in both, and the ratio of the two.

    python -m benchmarks.lcm_tools
    python -m benchmarks.lcm_tools --messages 20000
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leporello import LCMEngine
from leporello.store import FOLD, Cover, JournalRow, Node, StoredWindow, WindowItem
from leporello.store.records import Artifact
from leporello.testing.manual_executor import ManualExecutor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.messages import Message
    from leporello.store import Store

SHORT, LONG = 1_000, 100_000
BAR = 50.0  # milliseconds
CALLS = 7
LEAF, FAN_IN, TAIL = 40, 8, 120  # messages of a leaf, nodes of a condensed one, messages behind the nodes
FOLDED_EVERY = 400  # messages
SUMMARY = "- The yard was put in order, src/harbour/part.py was changed, and the tests passed.\n" * 12
BATCH = 2_000


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and fail when a tool takes longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--messages", type=int, default=LONG, metavar="N", help="the long conversation, default %(default)s"
    )
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        short = measured(Path(folder) / "short.db", SHORT)
        long = measured(Path(folder) / "long.db", arguments.messages)
    print(f"processor time of a tool, {SHORT:,} and {arguments.messages:,} messages (bar: {BAR:g} ms)")
    for name, took in long.items():
        print(f"  {name:<28} {short[name]:8.2f} ms {took:8.2f} ms   × {took / short[name]:.1f}")
    return int(max(long.values()) > BAR)


def measured(path: Path, length: int) -> dict[str, float]:
    """Return the milliseconds of every tool in a conversation of this length."""
    engine = LCMEngine(200_000, store=path, executor=ManualExecutor())
    engine.on_event = lambda _: None
    engine.on_session_start("bench")
    top, leaf = build(engine.store, "bench", length)
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "lcm_status": ("lcm_status", {}),
        "lcm_grep, a rare word": ("lcm_grep", {"query": f"needle{length // 2}"}),
        "lcm_grep, common words": ("lcm_grep", {"query": "harbour yard"}),
        "lcm_grep, a question": ("lcm_grep", {"query": "which part of the harbour was put in order first?"}),
        "lcm_grep, newest first": ("lcm_grep", {"query": "harbour", "sort": "recency"}),
        "lcm_grep, with a filter": ("lcm_grep", {"query": "harbour", "role": "user", "tool": "none"}),
        "lcm_describe, a top node": ("lcm_describe", {"id": top}),
        "lcm_describe, a leaf": ("lcm_describe", {"id": leaf}),
        "lcm_describe, a message": ("lcm_describe", {"id": f"m{length // 2}"}),
        "lcm_describe, a file": ("lcm_describe", {"id": "file:src/harbour/part_3.py"}),
        "lcm_describe, a rare file": ("lcm_describe", {"id": "file:docs/rare.md"}),
        "lcm_expand, a top node": ("lcm_expand", {"id": top}),
        "lcm_expand, a leaf": ("lcm_expand", {"id": leaf}),
        "lcm_expand, a message": ("lcm_expand", {"id": f"m{length // 2}"}),
        "lcm_expand_query": ("lcm_expand_query", {"question": "which part of the harbour was put in order first?"}),
        "lcm_artifacts": ("lcm_artifacts", {}),
        "lcm_artifacts, a kind": ("lcm_artifacts", {"kind": "command"}),
        "lcm_artifacts, a rare one": ("lcm_artifacts", {"query": "docs/rare.md"}),
    }
    took = {name: _milliseconds(engine, tool, given) for name, (tool, given) in asked.items()}
    engine.close()
    return took


def build(store: Store, conversation: str, length: int) -> tuple[str, str]:
    """Store a conversation that was folded as it went, with its journal and its trail; return a top node and a leaf."""
    seqs = [
        store.get([id_])[id_].seq
        for start in range(0, length, BATCH)
        for id_ in store.append(conversation, list(_messages(start, min(BATCH, length - start))))[:1]
    ]
    folded = length - TAIL
    level = store.add_nodes(conversation, list(_leaves(folded)))
    every = list(level)
    while len(level) > FAN_IN:
        groups = [level[at : at + FAN_IN] for at in range(0, len(level), FAN_IN)]
        level = store.add_nodes(conversation, [_over(group) for group in groups])
        every += level
    items: list[WindowItem] = [{"n": node.id} for node in level]
    items += [{"m": f"m{number}"} for number in range(folded + 1, length + 1)]
    report = {"tokens_before": 150_000, "tokens_after": 40_000, "model_calls": 0}
    for number in range(length // FOLDED_EVERY):
        last = number == length // FOLDED_EVERY - 1
        for _ in range(FOLDED_EVERY // 4):
            row = JournalRow(reason="request", keep=len(items), added=(), usage={"prompt_tokens": 100}, cost_usd=0.001)
            store.record_request(conversation, row)
        store.save_window(
            conversation,
            StoredWindow(version=number, items=tuple(items[number % 7 :] if not last else items)),
            JournalRow(reason=FOLD, keep=0, added=(), cost_usd=0.01, report=report),
            used=[node.id for node in every] if last else (),
        )
    for start in range(1, length + 1, BATCH):
        store.add_artifacts(conversation, list(_artifacts(start, min(length + 1, start + BATCH))))
    assert seqs[0] == 1
    return level[0].id, every[0].id


def _messages(start: int, count: int) -> Iterator[Message]:
    for n in range(start + 1, start + count + 1):
        text = (
            f"message {n} needle{n}: the harbour's yard, part {n % 97}, is in order; see src/harbour/part_{n % 13}.py"
        )
        yield {"role": ("user", "assistant")[n % 2], "content": f"{text}. " + "More of the same. " * (n % 9)}


def _leaves(folded: int) -> Iterator[Node]:
    for first in range(1, folded + 1, LEAF):
        last = min(folded, first + LEAF - 1)
        yield _node(0, first, last, covers=(Cover(first_seq=first, last_seq=last),))


def _over(group: Sequence[Node]) -> Node:
    ids = tuple(node.id for node in group)
    return _node(group[0].level + 1, group[0].first_seq, group[-1].last_seq, children=ids)


def _node(level: int, first: int, last: int, **parts: Any) -> Node:
    return Node(
        level=level,
        text=SUMMARY,
        tokens=250,
        source_tokens=30 * (last - first + 1),
        made_by="extract",
        first_seq=first,
        last_seq=last,
        messages=last - first + 1,
        time_from=0.0,
        time_to=1.0,
        meta={"begins": f"m{first}", "ends": f"m{last}", "counts": {"files": 3}},
        **parts,
    )


def _artifacts(start: int, stop: int) -> Iterator[Artifact]:
    for n in range(start, stop):
        kind, value = (("file", f"src/harbour/part_{n % 13}.py"), ("command", f"make part-{n}"))[n % 2]
        rare = n == 11  # near the beginning, the farthest from the newest
        yield Artifact(
            kind="file" if rare else kind, value="docs/rare.md" if rare else value, message=f"m{n}", time=1.0
        )


def _milliseconds(engine: LCMEngine, tool: str, given: dict[str, Any]) -> float:
    took = []
    for _ in range(CALLS):
        started = time.process_time()
        answer = engine.handle_tool_call(tool, given)
        took.append((time.process_time() - started) * 1_000)
        assert "error" not in json.loads(answer), answer
    return statistics.median(took)


if __name__ == "__main__":
    sys.exit(main())
