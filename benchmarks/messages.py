"""How long the work on a list of messages takes, beside a deep copy of the same list.

python benchmarks/messages.py --messages 10000
python benchmarks/messages.py --data conversations.jsonl
"""

from __future__ import annotations

import argparse
import json
from copy import deepcopy
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

from leporello.messages import canonical, fingerprint, groups, repair, to_anthropic, violations
from leporello.testing.conversations import conversation

if TYPE_CHECKING:
    from collections.abc import Callable

WORK: dict[str, Callable[[list[Any]], object]] = {
    "deep copy (baseline)": deepcopy,
    "violations, one dialect": lambda messages: violations(messages, "anthropic"),
    "repair of a valid list": repair,
    "repair of a broken list": lambda messages: repair([*messages, {"role": "user", "content": ""}]),
    "groups": groups,
    "fingerprints": lambda messages: [fingerprint(message) for message in messages],
    "to Anthropic, with residue": to_anthropic,
    "canonical form": canonical,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000, help="length of the generated list")
    parser.add_argument("--data", type=Path, help="JSON lines with a field 'messages' each, in OpenAI's format")
    options = parser.parse_args(argv)
    messages = _read(options.data) if options.data else _generated(options.messages)
    print(f"{len(messages)} messages")
    print(f"{'':28}{'ms':>9}{'µs each':>9}{'x copy':>9}")
    baseline = 0.0
    for name, work in WORK.items():
        seconds = min(_timed(work, messages) for _ in range(5))
        baseline = baseline or seconds
        print(f"{name:28}{seconds * 1e3:9.1f}{seconds / len(messages) * 1e6:9.1f}{seconds / baseline:9.2f}")
    return 0


def _timed(work: Callable[[list[Any]], object], messages: list[Any]) -> float:
    start = process_time()
    work(messages)
    return process_time() - start


def _generated(length: int) -> list[Any]:
    return repair(conversation(1, turns=length, payload=200)[:length]).messages


def _read(path: Path) -> list[Any]:
    """Return all conversations of a file as one valid list."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return repair([message for line in lines for message in json.loads(line)["messages"]]).messages


if __name__ == "__main__":
    raise SystemExit(main())
