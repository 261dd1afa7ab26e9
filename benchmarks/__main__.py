"""Run all benchmarks, or those that are named: `python -m benchmarks [NAME ...] [--data PATH] [--out FOLDER]`.

What they print is also written to a dated JSON file and a Markdown page in FOLDER.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import time
import traceback
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.results import Result, publish, write


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What a benchmark shows, and what it takes from a folder of real conversations."""

    shows: str
    data: str | None = None  # a folder below the data, "" for all of it
    needs_data: bool = False
    module: str = ""  # where it is, when not in one of its name
    options: tuple[str, ...] = ()
    takes_encoder: bool = False


BENCHMARKS = {
    "tokens": Benchmark(shows="the estimator beside a real tokenizer", data=""),
    "redaction": Benchmark(shows="secrets: throughput, linearity, false positives", data=""),
    "messages": Benchmark(shows="rules, repair and conversion beside a deep copy"),
    "digest": Benchmark(shows="what a summariser reads, beside json", data=""),
    "extractive_summary": Benchmark(shows="a summary without a model, beside splitting words", data=""),
    "compress": Benchmark(shows="compress() at 100, 1,000 and 10,000 messages, beside hermes-agent 0.19.0"),
    "store": Benchmark(shows="append, ingest, disk and memory beside bare SQLite", data=""),
    "postgres": Benchmark(shows="append, recognition, search and fold on PostgreSQL, beside SQLite"),
    "postgres_million": Benchmark(shows="a million messages copied to PostgreSQL and back, and searched there"),
    "purge": Benchmark(shows="deleting in a large store, and how long a purge keeps others from writing"),
    "search": Benchmark(shows="latency and needles among 100,000 messages beside bare FTS5"),
    "lcm": Benchmark(shows="the lossless engine: a turn, a fold, prompts"),
    "lcm_tools": Benchmark(shows="the tools of the lossless engine at 1,000 and 100,000 messages"),
    "caching": Benchmark(shows="cache markers beside a deep copy, cache reads over 300 turns", data="tau-bench"),
    "threshold": Benchmark(shows="what lcm costs with threshold auto, beside a sweep of fixed ones"),
    "session": Benchmark(shows="what a turn costs beside the model, at 1,000 and 10,000 messages"),
    "walk": Benchmark(shows="the files and functions that a plain turn and a fold cross, by package"),
    "startup": Benchmark(shows="start-up of the command line, beside a bare Python"),
    "gateway": Benchmark(shows="the gateway under load, beside calling the model server directly"),
    "gateway_beside": Benchmark(shows="requests per second, latency and memory, beside LiteLLM's proxy"),
    "gateway_streams": Benchmark(shows="streamed conversations of real clients: none splits, none hangs"),
    "gateway_tenants": Benchmark(shows="what two keys notice of a hostile third, beside being alone"),
    "view": Benchmark(shows="the page at 1,000 and 100,000 messages"),
    "proof": Benchmark(
        shows="cost, needed later and probes of engines, baselines and a plugin", data="", options=("--long",)
    ),
    "needed": Benchmark(
        shows="what windows hold of what is needed later, at recorded compactions and turn by turn",
        data="claude-code",
        options=("--minutes", "5", "--keep", "bench-results/needed.jsonl"),
    ),
    "locomo": Benchmark(shows="natural-language recall, beside plain FTS5", data="locomo", needs_data=True),
    "locomo_left_out": Benchmark(
        shows="the same with weights chosen on the other conversations",
        data="locomo",
        needs_data=True,
        module="locomo",
        options=("--leave-one-out",),
    ),
    "locomo_captions": Benchmark(
        shows="the same with the captions of shared pictures, beside plain FTS5",
        data="locomo",
        needs_data=True,
        module="locomo",
        options=("--captions",),
    ),
    "locomo_vectors": Benchmark(
        shows="what vectors of a sentence encoder would add", data="locomo", needs_data=True, takes_encoder=True
    ),
    "memorybank": Benchmark(shows="recall in two languages, beside plain FTS5", data="memorybank", needs_data=True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which ones (default: all): {', '.join(BENCHMARKS)}")
    parser.add_argument("--data", type=Path, help="a folder of real conversations; never copied")
    parser.add_argument("--encoder", type=Path, help="a folder with a sentence encoder, for locomo_vectors")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="a folder (default: %(default)s)")
    parser.add_argument("--publish", action="store_true", help="put these into docs/benchmarks.md, with `make docs`")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - BENCHMARKS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    results: dict[str, Result] = {}
    for name in arguments.names or BENCHMARKS:
        print(f"\n## {name}: {BENCHMARKS[name].shows}\n", flush=True)
        results[name] = run(name, arguments.data, arguments.encoder)
    files = write(results, arguments.out)
    for file in files:
        print(f"wrote {file}")
    if arguments.publish:
        publish(files[0])
    return 0 if all(result.met for result in results.values()) else 1


def run(name: str, data: Path | None, encoder: Path | None = None) -> Result:
    """Run one benchmark, and keep what it prints."""
    benchmark = BENCHMARKS[name]
    heard = Tee(sys.stdout)
    started, load = time.perf_counter(), os.getloadavg()[0]
    with contextlib.redirect_stdout(heard):
        if benchmark.needs_data and not data:
            print("needs --data")
            status = 0
        else:
            options = ["--data", str(data / benchmark.data)] if data and benchmark.data is not None else []
            options += ["--encoder", str(encoder)] if encoder and benchmark.takes_encoder else []
            try:
                status = int(
                    import_module(f"benchmarks.{benchmark.module or name}").main([*options, *benchmark.options])
                )
            except Exception:  # noqa: BLE001 - one that breaks down does not take the others with it
                print(f"broke down:\n\n```text\n{traceback.format_exc()}```")
                status = 1
    seconds = round(time.perf_counter() - started, 1)
    return Result(shows=benchmark.shows, printed=heard.getvalue(), met=status == 0, seconds=seconds, load=load)


class Tee(io.StringIO):
    """Keeps what is printed, and prints it."""

    def __init__(self, screen: Any) -> None:
        super().__init__()
        self._screen = screen

    def write(self, text: str) -> int:
        """Print and keep."""
        self._screen.write(text)
        self._screen.flush()
        return super().write(text)


if __name__ == "__main__":
    sys.exit(main())
