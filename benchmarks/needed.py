"""What windows hold of what the agent needs later: both engines, baselines, lists of names, and a log's own summaries.

    python -m benchmarks.needed [--data PATH] [--keep FILE] [--minutes N] [--jobs N] [--json FILE]

PATH is a log or a folder of logs, such as Claude Code's; without it, sessions of the project's own generator are taken,
which is said so. Every conversation is looked at three times: where its log records compactions (every engine folds
there and nowhere else), and turn by turn with windows of 32,000 and of 64,000 tokens, in its first 150,000 tokens. The
shares are those of `leporello replay`, with their 95 % interval over conversations; indented are the baselines that
have as many tokens as the engine above them.

Three planted failures stand among them: a list of names alone, a list with shuffled words, and an engine whose
summaries are empty. The exit code is 1 when none of the three shares is below that of the engine beside it.

With --keep what is measured is written to FILE, file by file, and not measured again, until the code of the package
changes. With --minutes no further file is begun when the time is up; the table is of what is there then. Files come in
the order of their hashes, so that a part of them is a fair sample.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from leporello import ContextCompressor
from leporello.errors import TranscriptError
from leporello.proof import ReplaySettings, joined, replay
from leporello.proof.bootstrap import ROUNDS, share
from leporello.proof.needed import Kept
from leporello.proof.replay import RECORDED, cuts_of
from leporello.summary.placement import PREFIX
from leporello.testing.coding_session import coding_session
from leporello.transcripts import Transcript, read_transcripts, transcript_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from leporello.messages import Message
    from leporello.proof.replay import Run

MODEL = "claude-sonnet-5"
LOOKS: dict[str, tuple[int, Literal["growth", "recorded"]]] = {
    "recorded compactions, window 200,000": (200_000, "recorded"),
    "turn by turn, window 32,000": (32_000, "growth"),
    "turn by turn, window 64,000": (64_000, "growth"),
}
FIRST = 150_000  # tokens of a conversation that are looked at turn by turn
ENGINES = (RECORDED, "lcm", "compressor")
EMPTY = "compressor, summaries empty"
BESIDE = ("window", "mask", "mask+names", "names+words", "names", "names+shuffled words")
PLANTED = {"names": "lcm", "names+shuffled words": "lcm", EMPTY: "compressor"}
"""What must be worse than an engine: the lists that have as many tokens as it, and the engine without its summaries."""
SURE = 0.975
"""Of all draws of conversations: so often one of the shares of what is planted is below the engine's."""
SHARES = ("present", "in context", "together")
_GENERATED = {"generated 0": (100, 0), "generated 1": (100, 1)}  # turns, seed
_ROOT = Path(__file__).parents[1]


class EmptySummaries(ContextCompressor):
    """A planted failure: the compressor, with nothing in its summaries."""

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        """Fold, and leave of the summary its mark alone."""
        made = super().compress(messages, *args, **options)
        return made if made == messages else [_emptied(message) for message in made]


def _emptied(message: Message) -> Message:
    text = message.get("content")
    return {**message, "content": PREFIX} if isinstance(text, str) and text.startswith(PREFIX) else message


@dataclass(kw_only=True)
class Held:
    """What the windows of one policy held in one conversation."""

    cuts: int = 0
    tokens: int = 0
    kept: Kept = field(default_factory=Kept)
    reread: int = 0
    unnecessary: int = 0

    def shares(self) -> list[tuple[int, int]]:
        """Return hits and all, of each share."""
        return [
            (self.kept.present, self.kept.n),
            (self.kept.in_context, self.kept.n),
            (self.kept.together, self.kept.pairs),
        ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a log or a folder of logs; never copied")
    parser.add_argument("--keep", type=Path, help="write what is measured to this file, and go on from it")
    parser.add_argument("--minutes", type=float, help="begin no further file after this time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: all cores")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    sources = sources_of(options.data)
    measured = Measured(options.keep)
    measure(sources, measured, jobs=options.jobs, minutes=options.minutes)
    rows = measured.rows(sources)
    if options.data is None:
        print("Sessions of the project's own generator.\n")
    left = sum(source not in measured for source in sources)
    if left:
        print(f"{left} of {len(sources)} files are not measured yet: call it again to go on.\n")
    for look in LOOKS:
        print(f"{look}\n\n{table(rows[look])}\n")
    unseen = unnoticed(rows)
    print("\n".join(unseen) or "every planted failure is worse than the engine beside it")
    if options.json:
        told = {look: {name: figures(held) for name, held in found.items()} for look, found in rows.items()}
        options.json.write_text(json.dumps(told, indent=2), "utf-8")
    return 1 if unseen else 0


def sources_of(data: Path | None) -> list[str]:
    """Return the files, in the order of their hashes; without any, the names of generated sessions."""
    if data is None:
        return list(_GENERATED)
    return sorted(map(str, transcript_files(data)), key=_digest)


def _digest(source: str) -> str:
    """Return the hash of a file, or of the name of a generated session."""
    return hashlib.sha256(source.encode() if source in _GENERATED else Path(source).read_bytes()).hexdigest()


class Measured:
    """What is measured, by the hash of the file; kept in a file for as long as the code is the same."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._code = _code() if path else ""
        self._found: dict[str, list[dict[str, Any]]] = {}
        for line in path.read_text("utf-8").splitlines() if path and path.exists() else ():
            row = json.loads(line)
            if row["code"] == self._code:
                self._found[row["file"]] = row["conversations"]

    def __contains__(self, source: str) -> bool:
        return _digest(source) in self._found

    def add(self, source: str, conversations: list[dict[str, Any]]) -> None:
        """Take down what the conversations of a file came to."""
        self._found[_digest(source)] = conversations
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            row = {"file": _digest(source), "code": self._code, "conversations": conversations}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def rows(self, sources: Iterable[str]) -> dict[str, dict[str, list[Held]]]:
        """Return by look and policy what each conversation of these files came to."""
        rows: dict[str, dict[str, list[Held]]] = {look: {} for look in LOOKS}
        for source in sources:
            for one in self._found.get(_digest(source), ()):
                for name, held in one["policies"].items():
                    known = Held(**{**held, "kept": Kept(**held["kept"])})
                    rows[one["look"]].setdefault(name, []).append(known)
        return rows


def _code() -> str:
    """Return the hash of everything that the figures depend on."""
    files = [*sorted((_ROOT / "src").rglob("*.py")), Path(__file__)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def measure(sources: Sequence[str], measured: Measured, *, jobs: int, minutes: float | None = None) -> None:
    """Measure what is not yet measured, in several processes, until the time is up."""
    end = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    left = iter([source for source in sources if source not in measured])
    running: dict[Future[list[dict[str, Any]]], str] = {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        while True:
            while len(running) < jobs and time.monotonic() < end and (source := next(left, None)):
                running[pool.submit(looked_at, source)] = source
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                measured.add(running.pop(done), done.result())


def looked_at(source: str) -> list[dict[str, Any]]:
    """Look at all conversations of a file in all three ways."""
    found = []
    for transcript in _transcripts(source):
        for look, (window, cuts) in LOOKS.items():
            settings = ReplaySettings(model=MODEL, window=window, cuts=cuts, beside=BESIDE, probes=False)
            runs = _runs(transcript if cuts == "recorded" else next(joined([transcript], FIRST)), settings)
            if any(cut.score.all.n for run in runs for cut in run.cuts):
                held = {name: asdict(one) for run in runs for name, one in _held(run)}
                found.append({"look": look, "policies": held})
    return found


def _transcripts(source: str) -> Iterator[Transcript]:
    if source in _GENERATED:
        turns, seed = _GENERATED[source]
        yield Transcript(name=source, format="openai", messages=coding_session(turns, seed=seed))
        return
    try:
        yield from read_transcripts(source)
    except TranscriptError as error:
        print(f"left out: {error}", file=sys.stderr)


def _runs(transcript: Transcript, settings: ReplaySettings) -> list[Run]:
    """Drive all policies through a conversation; the one that is planted has no baselines beside it."""
    cuts = cuts_of(transcript, settings)
    if not cuts:
        return []
    names = ENGINES if transcript.compactions and settings.cuts == "recorded" else ENGINES[1:]
    runs = [replay(transcript, name, settings, cuts=cuts) for name in names]
    alone = replace(settings, beside=())
    return [*runs, replay(transcript, EMPTY, alone, policy=EmptySummaries, cuts=cuts)]


def _held(run: Run) -> Iterator[tuple[str, Held]]:
    """Yield what a policy held, and what each baseline held in as many tokens."""
    used = [again for cut in run.cuts for again in cut.rereads if again.taken]
    yield (
        run.engine,
        Held(
            cuts=len(run.cuts),
            tokens=sum(cut.tokens for cut in run.cuts),
            kept=sum((cut.score.all for cut in run.cuts), Kept()),
            reread=len(used),
            unnecessary=sum(again.unnecessary for again in used),
        ),
    )
    for name in dict.fromkeys(name for cut in run.cuts for name in cut.beside):
        found = [cut.beside[name] for cut in run.cuts]
        kept = sum((score.all for _, score in found), Kept())
        yield f"{run.engine}: {name}", Held(cuts=len(found), tokens=sum(tokens for tokens, _ in found), kept=kept)


def figures(held: Sequence[Held]) -> dict[str, Any]:
    """Return the shares of a policy, with their intervals over conversations."""
    cuts = sum(one.cuts for one in held)
    columns = list(zip(*(one.shares() for one in held), strict=True))
    shares = {name: share(column)._asdict() for name, column in zip(SHARES, columns, strict=True)}
    return {
        "conversations": len(held),
        "cuts": cuts,
        "tokens": round(sum(one.tokens for one in held) / max(1, cuts)),
        "needed": sum(one.kept.n for one in held),
        **shares,
        "reread": share([(one.unnecessary, one.reread) for one in held])._asdict(),
        "files read again": sum(one.reread for one in held),
    }


def table(rows: Mapping[str, list[Held]]) -> str:
    """Return a table of the policies; below each engine the baselines in as many tokens."""
    lines = [
        "| policy | conversations | cuts | tokens | present | in context | together | reread |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, held in rows.items():
        if not sum(one.cuts for one in held):
            continue
        told = figures(held)
        engine, _, baseline = name.partition(": ")
        shown = f"– {baseline}" if baseline else engine
        again = f"{_share(told['reread'])} of {told['files read again']}" if told["files read again"] else ""
        cells = [shown, told["conversations"], told["cuts"], f"{told['tokens']:,}"]
        lines.append(f"| {' | '.join(map(str, [*cells, *(_share(told[key]) for key in SHARES), again]))} |")
    return "\n".join(lines)


def _share(one: Mapping[str, float | None]) -> str:
    if one["value"] is None:
        return "–"
    low, high = one["low"], one["high"]
    return f"{one['value']:.3f}" if low is None else f"{one['value']:.3f} ({low:.3f} – {high:.3f})"


def unnoticed(rows: Mapping[str, Mapping[str, list[Held]]]) -> list[str]:
    """Return the planted failures that no share tells from the engine beside them."""
    found = []
    for look, policies in rows.items():
        for planted, engine in PLANTED.items():
            name = planted if planted in policies else f"{engine}: {planted}"
            if name in policies and not is_worse(policies[name], policies[engine]):
                found.append(f"{look}: a planted failure is as good as {engine}: {planted}")
    return found


def is_worse(held: Sequence[Held], other: Sequence[Held]) -> bool:
    """Tell whether one of the shares is below that of another policy, in nearly all draws of conversations."""
    pairs = list(zip(held, other, strict=True))
    random = Random(len(pairs))
    draws = [random.choices(pairs, k=len(pairs)) for _ in range(ROUNDS if len(pairs) > 1 else 1)]
    below: Counter[str] = Counter()
    for drawn in draws:
        ours, theirs = (_shares(side) for side in zip(*drawn, strict=True))
        below.update(name for name in SHARES if ours[name] < theirs[name])
    return any(count >= SURE * len(draws) for count in below.values())


def _shares(held: Iterable[Held]) -> dict[str, float]:
    """Return the shares over several conversations; of nothing, 1."""
    columns = zip(*(one.shares() for one in held), strict=True)
    return {
        name: sum(hits for hits, _ in column) / whole if (whole := sum(count for _, count in column)) else 1.0
        for name, column in zip(SHARES, columns, strict=True)
    }


if __name__ == "__main__":
    sys.exit(main())
