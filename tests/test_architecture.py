"""The steps that ARCHITECTURE.md lists are functions of the code, and a real run takes them in that order."""

from __future__ import annotations

import ast
import sys
import threading
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import leporello
from leporello import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.fixtures.gateway import Gateway, Wire

ROOT = Path(leporello.__file__).parent
PAGE = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text("utf-8")
TURN, FOLD, COMPRESSOR, LOSSLESS, REQUEST = range(5)
ENGINES = ("compressor", "lcm", "summary", "engine")  # the packages in which methods of engines are

Call = tuple[str, ...]
"""A function with what it is in, in lower case: the packages, the module and the class."""


def trees(page: str) -> list[list[str]]:
    """Return the names of the steps in each tree of the page, from the section about a turn on."""
    blocks = page.partition("## One turn")[2].split("```")[1::2]
    return [[name for line in block.strip("\n").splitlines() for name in names(line)] for block in blocks]


def names(line: str) -> list[str]:
    """Return the names in the left column of a line: what stands on the right, or goes elsewhere, is prose."""
    left = line.strip(" ├└▶─").partition("  ")[0]
    left = "" if line.startswith(" " * 20) or line.strip().startswith("─▶") else left
    said = left.replace(" ─▶ ", ", ").replace("/", ".").split(", ")
    return [name.partition("(")[0] for name in said if "." in name]


def taken(name: str, call: Call) -> bool:
    """Tell whether a call is the step of this name: its parts stand in the call, in order."""
    first, *rest = name.lower().split(".")
    if first == "engine":
        return call[0] in ENGINES and call[-1] == rest[-1]
    parts = iter(call)
    return all(part in parts for part in (first, *rest))


@cache
def functions() -> list[Call]:
    """Return every function of the code, as a call of it is recorded."""
    found = []
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    for path in ROOT.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, defined):
                found.append(as_call(str(path), node.name))
            elif isinstance(node, ast.ClassDef):
                inside = [item.name for item in node.body if isinstance(item, defined)]
                found += [as_call(str(path), f"{node.name}.{name}") for name in inside]
    return found


def as_call(path: str, qualname: str) -> Call:
    """Return a function as it is recorded."""
    module = Path(path).relative_to(ROOT).with_suffix("").parts
    return tuple(part.lower() for part in (*module, *qualname.split(".")))


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Record the functions that are called in this thread, and in those that are started meanwhile."""
    calls: list[Call] = []

    def profile(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)) and "<" not in code.co_qualname:
            calls.append(as_call(code.co_filename, code.co_qualname))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def check(tree: Sequence[str], calls: Sequence[Call], *, without: Sequence[str] = ()) -> None:
    """Find every step of a tree in a run, each behind the one before it."""
    at = 0
    for name in tree:
        if name in without:
            continue
        found = next((n for n in range(at, len(calls)) if taken(name, calls[n])), None)
        assert found is not None, f"{name} does not follow in this run"
        at = found + 1


def answer(text: str, tokens: int, *calls: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}
    usage = {"prompt_tokens": tokens, "completion_tokens": 10, "total_tokens": tokens + 10}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


def turn_that_folds(engine: str) -> list[Call]:
    """Record a turn with everything in it: two questions in a row, other tools, a fold, a call of an engine's tool."""
    words = "a sentence about cranes and berths. " * 40
    with Session.open("s", model="gpt-4o", context_length=16_000, engine=engine, store=":memory:", llm=None) as session:
        for number in count():
            compactions = session.usage().compactions
            tool = {"type": "function", "function": {"name": f"tool_{number}", "parameters": {"type": "object"}}}
            own = {"id": f"c{number}", "type": "function", "function": {"name": "lcm_status", "arguments": "{}"}}
            with recorded() as calls:
                session.add({"role": "user", "content": f"First {number}. {words}"}, {"role": "user", "content": words})
                session.request([tool])
                session.record(answer(words, session.usage().tokens, *([own] if engine == "lcm" else [])))
            if session.usage().compactions > compactions:
                return calls
            if engine == "lcm":
                session.request([tool])
                session.record(answer("Done.", session.usage().tokens))
    raise AssertionError


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Call]]:
    return {engine: turn_that_folds(engine) for engine in ("compressor", "lcm")}


def test_every_step_is_a_function() -> None:
    missing = [name for tree in trees(PAGE) for name in tree if not any(taken(name, call) for call in functions())]
    assert len(trees(PAGE)) == 5
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_a_turn_and_its_fold_go_as_the_page_says(runs: dict[str, list[Call]], engine: str) -> None:
    turn, fold, *engines = trees(PAGE)[:4]
    without = [] if engine == "lcm" else ["engine.handle_tool_call"]
    check(turn, runs[engine], without=without)
    other = "persistence.save" if engine == "lcm" else "persistence.commit"
    check(fold, runs[engine], without=["result_repair.repaired_result", other])
    check(engines[engine == "lcm"], runs[engine])


@pytest.mark.slow
def test_a_gateway_request_goes_as_the_page_says(start: Callable[..., Gateway], wire: Wire) -> None:
    said: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
    wire.headers = {"content-type": "text/event-stream"}
    wire.chunks = [
        b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"one"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    ]
    with recorded() as calls:
        gateway = start(wire)
        gateway.post("/v1/chat/completions", {"model": "m", "messages": said, "stream": True})
        said += [{"role": "assistant", "content": "one"}, {"role": "user", "content": "more"}]
        del calls[:]
        gateway.post("/v1/chat/completions", {"model": "m", "messages": said, "stream": True})
    only_sometimes = ["client_session.ClientSession.align", "client_session.ClientSession.refused"]
    check(trees(PAGE)[REQUEST], calls, without=only_sometimes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "tree", "line", "planted"),
    [
        ("lcm", TURN, "persistence.store", "window.extend"),
        ("compressor", FOLD, "acceptance.judge", "conversation.change"),
        ("compressor", COMPRESSOR, "compressor.boundaries", "summary.Summariser"),
        ("lcm", LOSSLESS, "lcm.fold.Fold.add", "lcm.view.assemble"),
    ],
)
def test_planted_steps_in_another_order_are_noticed(
    runs: dict[str, list[Call]], engine: str, tree: int, line: str, planted: str
) -> None:
    order = [{line: planted, planted: line}.get(name, name) for name in trees(PAGE)[tree]]
    without = ["result_repair.repaired_result", "persistence.save", "persistence.commit"]
    with pytest.raises(AssertionError, match="does not follow"):
        check(order, runs[engine], without=without)


def test_planted_a_name_that_is_no_function_is_noticed() -> None:
    tree = trees(PAGE.replace("acceptance.judge", "acceptance.judged"))[FOLD]
    assert not all(any(taken(name, call) for call in functions()) for name in tree)
