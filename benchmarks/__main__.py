"""Run all benchmarks, or those that are named: `python -m benchmarks [NAME ...] [--data PATH]`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

# name -> what it shows; those marked with * need --data
BENCHMARKS = {
    "tokens": "the estimator beside a real tokenizer",
    "redaction": "secrets: throughput, linearity, false positives",
    "compress": "compress() at 100, 1,000 and 10,000 messages, beside hermes-agent 0.19.0",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], help="which ones (default: all)")
    parser.add_argument("--data", help="a folder of real conversations; never copied")
    arguments = parser.parse_args()
    status = 0
    for name in arguments.names or BENCHMARKS:
        print(f"\n## {name}: {BENCHMARKS[name]}\n", flush=True)
        options = ["--data", arguments.data] if arguments.data and name in {"tokens", "redaction"} else []
        status |= int(import_module(f"benchmarks.{name}").main(options))
    return status


if __name__ == "__main__":
    sys.exit(main())
