"""The page: the processor time of each of its views, for a short conversation and for a very long one.

The first page of a conversation takes at most 300 ms at 100,000 messages, a step of the slider 100 ms. Printed are the
milliseconds of processor time (the median of several requests) in both, and the ratio of the two.

    python -m benchmarks.view
    python -m benchmarks.view --messages 20000
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from starlette.testclient import TestClient

from benchmarks.lcm_tools import build
from leporello.gateway.keys import Keys
from leporello.store import open_store
from leporello.view.access import Access
from leporello.view.app import Pages, create_app

SHORT, LONG = 1_000, 100_000
PAGE, STEP = 300.0, 100.0  # milliseconds
REQUESTS = 7


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and fail when a page takes longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--messages", type=int, default=LONG, metavar="N", help="the long conversation, default %(default)s"
    )
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        short = measured(Path(folder) / "short.db", SHORT)
        long = measured(Path(folder) / "long.db", arguments.messages)
    print(f"processor time of a page, {SHORT:,} and {arguments.messages:,} messages")
    met = True
    for name, (took, bar) in long.items():
        met = met and took <= bar
        print(f"  {name:<28} {short[name][0]:8.2f} ms {took:8.2f} ms   × {took / short[name][0]:.1f}   bar {bar:g} ms")
    return int(not met)


def measured(path: Path, length: int) -> dict[str, tuple[float, float]]:
    """Return the milliseconds of every page about a conversation of this length, and what it may take."""
    with closing(open_store(path)) as store:
        top, leaf = build(store, "bench", length)
        rows = store.journal("bench", last=1)[0].number
        access = Access(keys=Keys({}), local=None)
        client = TestClient(create_app(Pages(store, access)), base_url="http://127.0.0.1")
        pages = {
            "conversations": ("/view", PAGE),
            "window": ("/view/window?c=bench", PAGE),
            "entry": ("/view/entry?c=bench&index=20", STEP),
            "a top node": (f"/view/node?c=bench&id={top}", STEP),
            "a leaf": (f"/view/node?c=bench&id={leaf}", STEP),
            "original messages": (f"/view/originals?c=bench&first={length // 2}&last={length}", STEP),
            "message": (f"/view/message?c=bench&id=m{length // 2}", PAGE),
            "time": (f"/view/time?c=bench&at={rows // 2}", PAGE),
            "slider, a request": (f"/view/time?c=bench&at={rows // 2 + 3}", STEP),
            "slider, a fold": (f"/view/time?c=bench&at={rows}", STEP),
            "cost": ("/view/cost?c=bench", PAGE),
            "search": ("/view/search?q=harbour+yard", PAGE),
            "tree": ("/view/tree?c=bench", PAGE),
            "summaries": ("/view/dag?c=bench", PAGE),
            "artifacts": ("/view/artifacts?c=bench", PAGE),
        }
        return {name: (_milliseconds(client, path, fragment=bar == STEP), bar) for name, (path, bar) in pages.items()}


def _milliseconds(client: TestClient, path: str, *, fragment: bool) -> float:
    took = []
    for _ in range(REQUESTS):
        started = time.process_time()
        answer = client.get(path, headers={"hx-request": "true"} if fragment else {})
        took.append(1000 * (time.process_time() - started))
        assert answer.status_code == 200, answer.text
    return statistics.median(took)


if __name__ == "__main__":
    sys.exit(main())
