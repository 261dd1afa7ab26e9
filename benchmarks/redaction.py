"""How fast secrets are searched for, how the time grows on hostile text, and what is changed in real conversations.

    python benchmarks/redaction.py [--data PATH] [--megabytes N]

PATH is a folder of sets of conversations, each a folder of `*.json` and `*.jsonl`. Without it made-up text is measured.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from leporello.redact import redact, secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOSTILE = {
    "sk-sk-sk-": "sk-",
    "BEGIN PRIVATE KEY": "-----BEGIN RSA PRIVATE KEY-----",
    "END PRIVATE KEY": "-----END RSA PRIVATE KEY-----\n",
    "a@a@a:": "a@a@a:",
    "password=": "password=",
    'password="': 'password="',
    "Cookie:": "Cookie: ",
    "://a:": "://a:",
    "base64": "A1b2",
    "base64 lines": "A" * 64 + "\n",
    "eyJ": "-eyJ",
    "wrapped": "eyJaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
    "dots": ".",
    "percent": "%3D",
    "escaped settings": "\\n  password: abc",
    "00": "-00aA",
    "v1.0-": "v1.0-",
    "secrets only": "ghp_0123456789abcdefghijABCDEFGHIJ012345 ",
}
EXACT = {
    "paths": re.compile(r"(?<![\w/.])(?:~|\.{1,2})?/?(?:[\w.@-]+/)+[\w.@-]+"),
    "hashes": re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b"),
    "uuids": re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"),
    "identifiers": re.compile(r"\b[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+\b"),
}
MESSAGE_KEYS = {"role", "dia_id", "query"}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of conversations")
    parser.add_argument("--megabytes", type=float, default=1.0, help="size of the smaller hostile text (default 1)")
    options = parser.parse_args(argv)
    sets = {folder.name: list(documents(folder)) for folder in data_folders(options.data)}
    show_speed({name: "\n".join(s for d in found for s in strings(d)) for name, found in sets.items()} or made_up())
    show_growth(int(options.megabytes * 1_000_000))
    if sets:
        show_kept(sets)
        show_finds(sets)
    return 0


def data_folders(data: Path | None) -> list[Path]:
    """Return the sets of a data folder."""
    return sorted(path for path in data.iterdir() if path.is_dir()) if data is not None else []


def documents(folder: Path) -> Iterator[object]:
    """Yield every JSON value of a set."""
    for path in sorted(folder.glob("*.json*")):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            yield from (json.loads(line) for line in text.splitlines() if line.strip())
        else:
            yield json.loads(text)


def strings(value: object) -> Iterator[str]:
    """Yield all strings inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def messages(value: object) -> Iterator[dict[str, object]]:
    """Yield all messages inside a JSON value."""
    if isinstance(value, dict):
        if MESSAGE_KEYS & value.keys():
            yield value
        for item in value.values():
            yield from messages(item)
    elif isinstance(value, list):
        for item in value:
            yield from messages(item)


def made_up() -> dict[str, str]:
    """Return made-up prose and code, free of secrets."""
    rng = random.Random(1)
    words = ["".join(rng.choice("etaoinshrdlu") for _ in range(rng.randrange(2, 11))) for _ in range(2000)]
    prose = " ".join(rng.choice(words) + ("." if rng.random() < 0.08 else "") for _ in range(250_000))
    lines = (
        f"    {rng.choice(words)}_{rng.choice(words)} = {rng.choice(words)}({rng.choice(words)}: {n})"
        for n in range(40_000)
    )
    return {"prose": prose, "code": "\n".join(lines)}


def best(action: Callable[[], object], rounds: int = 5) -> float:
    """Return the processor time of the fastest round, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def show_speed(texts: dict[str, str]) -> None:
    print("Speed on clean text, beside one pass of str.count over it")
    print(f"  {'text':16}{'characters':>12}{'MB/s':>8}{'passes':>8}")
    for name, text in texts.items():
        sample = (text * (2_000_000 // max(1, len(text)) + 1))[:2_000_000]
        searched = best(lambda sample=sample: secrets(sample))  # type: ignore[misc]
        counted = best(lambda sample=sample: sample.count("\0"))  # type: ignore[misc]
        print(f"  {name:16}{len(sample):12,}{len(sample) / searched / 1e6:8.0f}{searched / counted:8.0f}")


def show_growth(size: int) -> None:
    print(f"\nHostile text of {size / 1e6:g} and {2 * size / 1e6:g} MB: seconds, and their ratio (2 is linear)")
    for name, unit in HOSTILE.items():
        small, large = ((unit * (length // len(unit) + 1))[:length] for length in (size, 2 * size))
        first = best(lambda small=small: redact(small), rounds=1)  # type: ignore[misc]
        second = best(lambda large=large: redact(large), rounds=1)  # type: ignore[misc]
        print(f"  {name:20}{first:8.2f}{second:8.2f}{second / max(first, 1e-9):8.1f}")


def show_kept(sets: dict[str, list[object]]) -> None:
    """Print how many exact values would change; at most 0.1 % should."""
    print("\nExact values of real conversations that redaction changes (bar: 0.1 %)")
    for name, found in sets.items():
        texts = [text for document in found for text in strings(document)]
        for kind, pattern in EXACT.items():
            total = changed = 0
            for text in texts:
                spans = secrets(text)
                places = [match.span() for match in pattern.finditer(text)]
                total += len(places)
                changed += sum(any(s.start < stop and s.end > start for s in spans) for start, stop in places)
            share = changed / total if total else 0.0
            print(f"  {name:16}{kind:14}{total:9,} values {changed:5} changed {share:8.3%}")


def show_finds(sets: dict[str, list[object]]) -> None:
    print("\nFound in real conversations (judge by eye which are no secrets)")
    for name, found in sets.items():
        every = [message for document in found for message in messages(document)]
        texts = [text for document in found for text in strings(document)] + [json.dumps(message) for message in every]
        finds = [(text, secret) for text in texts for secret in secrets(text)]
        print(f"  {name:16}{len(every):8,} messages {len(finds):5} finds")
        for text, secret in finds:
            context = text[max(0, secret.start - 40) : secret.end + 20]
            print(f"    {secret.kind}: {context!r}")


if __name__ == "__main__":
    raise SystemExit(main())
