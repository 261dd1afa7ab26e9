"""How good and how fast the token estimate is: against an exact counter, on real conversations.

    python benchmarks/tokens.py --data PATH

PATH holds the folders tau-bench, swe-agent, claude-code, locomo and memorybank; without it a conversation made here is
used. The error is that of a whole conversation: estimate / exact - 1, with the same fixed overheads on both sides.
"before" is the plain estimate; "after" is the estimate of the whole conversation when the size of each request on the
way was reported; "others" is corrected only by what the other conversations of the set taught.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, TypeAlias

from leporello.tokens import Calibration, count_message, count_messages, exact_counter
from leporello.tokens.estimate import PER_CALL, PER_ID, PER_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Conversation: TypeAlias = list[dict[str, Any]]
MODEL = "measured"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A conversation's messages, estimated and counted."""

    estimated: list[int]
    exact: list[int]
    request_ends: list[int]

    @property
    def error(self) -> float:
        """The relative error of the plain estimate."""
        return sum(self.estimated) / sum(self.exact) - 1

    def calibrated_error(self) -> float:
        """Return the error for the last request, each earlier one having been reported."""
        calibration = Calibration()
        estimated, exact = list(accumulate(self.estimated)), list(accumulate(self.exact))
        for end in self.request_ends:
            calibration.observe(MODEL, estimated[end - 1], exact[end - 1])
        return estimated[-1] * calibration.factor(MODEL) / exact[-1] - 1


def measure(conversation: Conversation, count: Callable[[str], int]) -> Sizes:
    """Estimate and count every message of a conversation."""
    ends = [i for i, message in enumerate(conversation) if i and message["role"] == "assistant"]
    return Sizes(
        estimated=[count_message(message) for message in conversation],
        exact=[exact_size(message, count) for message in conversation],
        request_ends=ends,
    )


def exact_size(message: dict[str, Any], count: Callable[[str], int]) -> int:
    """Count a message exactly; overheads are the estimate's own, so that the error is that of the text."""
    calls = message.get("tool_calls") or []
    fixed = PER_MESSAGE + len(calls) * (PER_CALL + PER_ID) + (PER_ID if "tool_call_id" in message else 0)
    return fixed + sum(count(text) for text in texts_of(message))


def texts_of(message: dict[str, Any]) -> list[str]:
    """Return every text of a message that reaches a model."""
    functions = [call["function"] for call in message.get("tool_calls") or []]
    texts = [text for function in functions for text in (function["name"], function["arguments"])]
    return [text for text in (message.get("content"), message.get("name"), *texts) if text]


def read_sets(path: Path) -> dict[str, list[Conversation]]:
    """Read the five sets as OpenAI-format conversations."""
    chinese = _memorybank(path / "memorybank/eval_data_cn_memory_bank_cn.json")
    return {
        "tau-bench": [_plain(row["messages"]) for row in _rows(path / "tau-bench")],
        "swe-agent": [_plain(row["messages"]) for row in _rows(path / "swe-agent")],
        "claude-code": [_from_blocks(row["messages"]) for row in _rows(path / "claude-code")],
        "locomo": [talk for file in sorted((path / "locomo").glob("*.json")) for talk in _locomo(file)],
        "memorybank en": _memorybank(path / "memorybank/eval_data_en_memory_bank_en.json"),
        "memorybank cn": chinese,
    }


def made() -> dict[str, list[Conversation]]:
    """Make a conversation for a run without data."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "read_file", "arguments": '{"path": "src/app.py"}'},
    }
    turn: Conversation = [
        {"role": "user", "content": "Please open the file and tell me why the import fails."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": Path(__file__).read_text("utf-8")},
        {"role": "assistant", "content": "The module is imported under its old name; I renamed it in line 12."},
    ]
    return {"made here": [turn * 20]}


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("*.jsonl")):
        yield from (json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip())


def _plain(messages: Iterable[dict[str, Any]]) -> Conversation:
    """Keep the fields of OpenAI's format, arguments as text."""
    kept = ("role", "content", "name", "tool_calls", "tool_call_id")
    conversation = []
    for message in messages:
        plain = {key: message[key] for key in kept if message.get(key) is not None}
        plain["content"] = _text(message.get("content"))
        if calls := plain.get("tool_calls"):
            plain["tool_calls"] = [
                _call(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls
            ]
        conversation.append(plain)
    return conversation


def _from_blocks(messages: Iterable[dict[str, Any]]) -> Conversation:
    """Convert Anthropic's blocks, one message per block."""
    conversation = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        conversation += [converted for block in blocks if (converted := _from_block(message["role"], block))]
    return conversation


def _from_block(role: str, block: dict[str, Any]) -> dict[str, Any] | None:
    match block["type"]:
        case "text" | "thinking":
            return {"role": role, "content": block[block["type"]]}
        case "tool_use":
            return {"role": role, "content": None, "tool_calls": [_call(block["id"], block["name"], block["input"])]}
        case "tool_result":
            return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _text(block.get("content"))}
    return None


def _call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": raw}}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


def _locomo(file: Path) -> list[Conversation]:
    talks = []
    for row in json.loads(file.read_text("utf-8")):
        turns = [turn for session in row["conversation"].values() if isinstance(session, list) for turn in session]
        first = turns[0]["speaker"]
        talks.append([{"role": "user" if t["speaker"] == first else "assistant", "content": t["text"]} for t in turns])
    return talks


def _memorybank(file: Path) -> list[Conversation]:
    people = json.loads(file.read_text("utf-8")).values()
    return [
        [
            {"role": role, "content": turn[key]}
            for day in person["history"].values()
            for turn in day
            for role, key in _SIDES
        ]
        for person in people
    ]


_SIDES = (("user", "query"), ("assistant", "response"))


def report(name: str, sizes: Sequence[Sizes]) -> str:
    """Return a line of the table."""
    errors = [size.error for size in sizes]
    after = [size.calibrated_error() for size in sizes]
    others = _corrected_by_others(errors)
    under = [error for error in errors if error < 0]
    worst = f"{min(errors):+.1%}" if under else "none"
    columns = [f"{p:.1%}" for group in (errors, after, others) for p in (_share(group, 0.5), _share(group, 0.95))]
    share = f"{len(under) / len(errors):.0%}"
    return f"{name:<15}{len(sizes):>4}" + "".join(f"{c:>8}" for c in (*columns, share, worst))


def _corrected_by_others(errors: Sequence[float]) -> list[float]:
    """Return the errors that remain when each estimate is divided by the others' median ratio."""
    if len(errors) == 1:
        return list(errors)
    rest = [median(1 + error for j, error in enumerate(errors) if j != i) for i in range(len(errors))]
    return [(1 + error) / other - 1 for error, other in zip(errors, rest, strict=True)]


def _share(errors: Sequence[float], share: float) -> float:
    """Return the absolute error that this share of the conversations stays below."""
    sizes = [abs(error) for error in errors]
    return quantiles(sizes, n=100, method="inclusive")[round(share * 100) - 1] if len(sizes) > 1 else sizes[0]


def speed(name: str, messages: Conversation, count: Callable[[str], int]) -> str:
    """Return how fast the estimate is beside encoding the text and beside the exact counter."""
    texts = [text for message in messages for text in texts_of(message)]
    size = sum(len(text.encode()) for text in texts)
    ours = _best(lambda: count_messages(messages))
    encoding = _best(lambda: [len(text.encode()) for text in texts])
    exact = _best(lambda: [count(text) for text in texts], times=1)
    return (
        f"{name:<15}{len(messages):>7}{size / 1e6:>8.1f}{ours * 1e3:>9.1f}{size / ours / 1e6:>8.0f}"
        f"{ours / encoding:>10.1f}{exact / ours:>10.1f}"
    )


def _best(work: Callable[[], object], times: int = 5) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def main(argv: list[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--data", type=Path, help="the folder with the five sets")
    options = parser.parse_args(argv)
    count = exact_counter()
    if count is None:
        print("this needs the exact counter: pip install 'leporello[tokens]'")
        return 2
    sets = read_sets(options.data) if options.data else made()
    print("set              n  before          after          others          under-  worst")
    print("                      p50     p95     p50     p95     p50     p95  counted under")
    measured = {name: [measure(talk, count) for talk in talks] for name, talks in sets.items()}
    for name, sizes in measured.items():
        print(report(name, sizes))
    print(report("all", [size for sizes in measured.values() for size in sizes]))
    print("\nset           messages      MB       ms    MB/s  ×encode()  × faster than exact")
    for name, talks in sets.items():
        print(speed(name, [message for talk in talks for message in talk], count))
    everything = [message for talks in sets.values() for talk in talks for message in talk]
    print(speed("10,000 messages", (everything * (10_000 // len(everything) + 1))[:10_000], count))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
