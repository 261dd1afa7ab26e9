"""What the engines and the baselines cost, keep and lose: conversations joined to 100,000 and 200,000 tokens.

Their window is one of 200,000 tokens, and one of 128,000, where no management has requests that do not fit.

    python -m benchmarks.proof [--data PATH] [--long] [--engine NAME] [--json FILE]

Without data: sessions of the project's own generator (`leporello.testing.coding_session`), which is said so; with
--long one of a million tokens, too. With data: the conversations of `tau-bench` and `claude-code` below PATH, joined.
Beside the baselines and our engines stand two that are loaded as plugins: `examples/keep_last_engine`, and hermes-lcm,
which others wrote for Hermes Agent, where a checkout of it is there (`benchmarks.peers`). Like ours it summarises
without a model then. --engine names more of them. The bars: lcm loses nothing, finds nine of ten by cue, and costs at
most 1.1 times masking, and at a window of a million tokens 0.9 times no management. A bar that is missed is said so,
and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers import plugin_folder
from leporello.proof import ReplaySettings, joined, replay_all
from leporello.testing.coding_session import coding_session
from leporello.transcripts import Transcript, read_transcripts

if TYPE_CHECKING:
    from collections.abc import Iterable

MODEL, WIDE = "claude-sonnet-5", 1_000_000
ENGINES = ("none", "window", "mask", "compressor", "lcm")
EXAMPLE = Path(__file__).parents[1] / "examples" / "keep_last_engine"
FOREIGN = "hermes-lcm"
SIZES = ((100_000, 200_000), (200_000, 200_000), (200_000, 128_000))  # tokens of a conversation, and of the window
LONG = 1_000_000
PER_TURN = 1_640  # tokens of a generated turn, about
MOST = 2  # joined conversations of each kind and length
CUE_BAR, MASK_BAR, NONE_BAR = 0.9, 1.1, 0.9
COLUMNS = ("engine", "cost", "cached", "folds", "tokens", "present", "in context", "together", "by cue", "lost")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with tau-bench and claude-code conversations; never copied")
    parser.add_argument("--engine", action="append", default=[], help="one more engine, such as a plugin's; repeatable")
    parser.add_argument("--long", action="store_true", help="also a generated session of a million tokens")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    told: dict[str, Any] = {}
    missed: list[str] = []
    plugins = [EXAMPLE, *filter(None, [plugin_folder(FOREIGN)])]
    engines = (*ENGINES, *(folder.name for folder in plugins), *options.engine)
    config = {"plugins": {"paths": [str(folder) for folder in plugins]}}
    if len(plugins) == 1:
        print(f"{FOREIGN} is not there and left out")
    for what, transcripts, window in suites(options.data, long=options.long):
        name = f"{what}, window {window:,}"
        settings = ReplaySettings(model=MODEL, window=window, config=config)
        figures = replay_all(transcripts, engines, settings, jobs=os.cpu_count() or 1)
        told[name] = figures.as_dict()
        missed += [f"{name}: {bar}" for bar in bars(told[name]["engines"], window)]
        print(f"\n{name}: {figures.sessions} conversation(s)\n\n{table(told[name]['engines'])}")
    print("\n" + ("\n".join(f"bar missed: {bar}" for bar in missed) or "every bar is met"))
    if options.json:
        options.json.write_text(json.dumps(told, indent=2), "utf-8")
    return 1 if missed else 0


def suites(data: Path | None, *, long: bool) -> Iterable[tuple[str, Iterable[Transcript], int]]:
    """Yield what is replayed: a name, the conversations, and the window."""
    for length, window in SIZES:
        if data is None:
            yield f"generated, {length:,} tokens", [generated(length, seed) for seed in range(MOST)], window
            continue
        for folder in ("tau-bench", "claude-code"):
            found = (one for file in sorted((data / folder).glob("*.jsonl")) for one in read_transcripts(file))
            yield f"{folder}, joined to {length:,} tokens", islice(joined(found, length), MOST), window
    if long:
        yield f"generated, {LONG:,} tokens", [generated(LONG, 0)], WIDE


def generated(tokens: int, seed: int) -> Transcript:
    messages = coding_session(tokens // PER_TURN, seed=seed)
    return Transcript(name=f"generated {seed}", format="openai", messages=messages)


def table(engines: dict[str, Any]) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for name, one in engines.items():
        rows.append((name, *_cells(one)))
        for beside, held in one["needed"]["beside"].items():
            rows.append((f"{beside}, as many tokens", "", "", "", *_needed(held), "", ""))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cells(one: dict[str, Any]) -> list[str]:
    over = f" ({one['overflows']:,} requests do not fit)" if one["overflows"] else ""
    replaced = f" ({one['replaced']} by the compressor)" if one["replaced"] else ""
    probes = one["probes"]
    cue = f"{probes['by_cue']} of {probes['asked']}" if probes["asked"] else "–"
    return [
        f"${one['cost_usd']:.2f}{over}",
        f"{one['cache_hit_share']:.1%}",
        f"{one['compactions']}{replaced}",
        *_needed(one["needed"]),
        cue,
        f"{probes['lost']} of {probes['n']}",
    ]


def _needed(needed: dict[str, Any]) -> list[str]:
    shares = ["–" if needed[key] is None else f"{needed[key]:.2f}" for key in ("present", "in_context", "together")]
    return [f"{needed['tokens']:,}", *shares]


def bars(engines: dict[str, Any], window: int) -> list[str]:
    """Return the bars that are missed, in words."""
    lcm, mask, none = (engines[name] for name in ("lcm", "mask", "none"))
    probes = lcm["probes"]
    missed = []
    if probes["lost"]:
        missed.append(f"lcm lost {probes['lost']} of {probes['n']}")
    if probes["by_cue"] < CUE_BAR * probes["asked"]:
        missed.append(f"lcm finds {probes['by_cue']} of {probes['asked']} by cue, the bar is {CUE_BAR:.0%}")
    if lcm["cost_usd"] > MASK_BAR * mask["cost_usd"]:
        missed.append(f"lcm costs {lcm['cost_usd'] / mask['cost_usd']:.2f} × masking, the bar is {MASK_BAR}")
    if window >= WIDE and lcm["cost_usd"] > NONE_BAR * none["cost_usd"]:
        missed.append(f"lcm costs {lcm['cost_usd'] / none['cost_usd']:.2f} × no management, the bar is {NONE_BAR}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
