"""Run all benchmarks, or those that are named: `python -m benchmarks [NAME ...] [--data PATH]`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What a benchmark shows, and what it takes from a folder of real conversations."""

    shows: str
    data: str | None = None  # a folder below the data, "" for all of it
    needs_data: bool = False


BENCHMARKS = {
    "tokens": Benchmark(shows="the estimator beside a real tokenizer", data=""),
    "redaction": Benchmark(shows="secrets: throughput, linearity, false positives", data=""),
    "messages": Benchmark(shows="rules, repair and conversion beside a deep copy"),
    "digest": Benchmark(shows="what a summariser reads, beside json", data=""),
    "extractive_summary": Benchmark(shows="a summary without a model, beside splitting words", data=""),
    "compress": Benchmark(shows="compress() at 100, 1,000 and 10,000 messages, beside hermes-agent 0.19.0"),
    "store": Benchmark(shows="append, ingest, disk and memory beside bare SQLite", data=""),
    "purge": Benchmark(shows="deleting in a large store, and how long a purge keeps others from writing"),
    "search": Benchmark(shows="latency and needles among 100,000 messages beside bare FTS5"),
    "lcm": Benchmark(shows="the lossless engine: a turn, a fold, prompts"),
    "lcm_tools": Benchmark(shows="the tools of the lossless engine at 1,000 and 100,000 messages"),
    "caching": Benchmark(shows="cache markers beside a deep copy, cache reads over 300 turns", data="tau-bench"),
    "threshold": Benchmark(shows="what lcm costs with threshold auto, beside a sweep of fixed ones"),
    "session": Benchmark(shows="what a turn costs beside the model, at 1,000 and 10,000 messages"),
    "startup": Benchmark(shows="start-up of the command line, beside a bare Python"),
    "gateway": Benchmark(shows="the gateway under load, beside calling the model server directly"),
    "gateway_tenants": Benchmark(shows="what two keys notice of a hostile third, beside being alone"),
    "locomo": Benchmark(shows="natural-language recall, beside plain FTS5", data="locomo", needs_data=True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which ones (default: all): {', '.join(BENCHMARKS)}")
    parser.add_argument("--data", type=Path, help="a folder of real conversations; never copied")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - BENCHMARKS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    status = 0
    for name in arguments.names or BENCHMARKS:
        benchmark = BENCHMARKS[name]
        print(f"\n## {name}: {benchmark.shows}\n", flush=True)
        if benchmark.needs_data and not arguments.data:
            print("needs --data")
            continue
        with_data = arguments.data and benchmark.data is not None
        options = ["--data", str(arguments.data / benchmark.data)] if with_data else []
        status |= int(import_module(f"benchmarks.{name}").main(options))
    return status


if __name__ == "__main__":
    sys.exit(main())
