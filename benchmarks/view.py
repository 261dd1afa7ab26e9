"""The page: what each of its views takes, for a short conversation and for a very long one, on both databases.

The first page of a conversation takes at most 300 ms at 100,000 messages, a step of the slider 100 ms. Printed are the
milliseconds (the median of several requests) in both, and the ratio of the two: processor time on SQLite, wall time on
PostgreSQL, which works in processes of its own.

    python -m benchmarks.view
    python -m benchmarks.view --messages 20000 --databases SQLite
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.testclient import TestClient

from benchmarks.lcm_tools import build
from benchmarks.postgres import server
from leporello.gateway.keys import Keys
from leporello.store import open_store
from leporello.view.access import Access
from leporello.view.app import PageRoutes, create_app

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT, LONG = 1_000, 100_000
PAGE, STEP = 300.0, 100.0  # milliseconds
REQUESTS = 7
CLOCKS: dict[str, Callable[[], float]] = {"SQLite": time.process_time, "PostgreSQL": time.perf_counter}


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and fail when a page takes longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--messages", type=int, default=LONG, metavar="N", help="the long conversation, default %(default)s"
    )
    parser.add_argument("--databases", nargs="+", choices=CLOCKS, default=list(CLOCKS), help="default: both")
    arguments = parser.parse_args(argv)
    met = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for database in arguments.databases:
            prefix = f"{server(folder)}schema=view_{uuid4().hex[:8]}_" if database == "PostgreSQL" else f"{folder}/"
            short = measured(f"{prefix}short", SHORT, CLOCKS[database])
            long = measured(f"{prefix}long", arguments.messages, CLOCKS[database])
            print(f"a page on {database}, {SHORT:,} and {arguments.messages:,} messages")
            for view, (took, bar) in long.items():
                met = met and took <= bar
                ratio = took / short[view][0]
                print(f"  {view:<28} {short[view][0]:8.2f} ms {took:8.2f} ms   × {ratio:.1f}   bar {bar:g} ms")
    return int(not met)


def measured(address: str, length: int, clock: Callable[[], float]) -> dict[str, tuple[float, float]]:
    """Return the milliseconds of every page about a conversation of this length, and what it may take."""
    with closing(open_store(address)) as store:
        top, leaf = build(store, "bench", length)
        rows = store.journal("bench", last=1)[0].number
        access = Access(keys=Keys({}), local=None)
        client = TestClient(create_app(PageRoutes(store, access)), base_url="http://127.0.0.1")
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
        return {
            name: (_milliseconds(client, path, clock=clock, fragment=bar == STEP), bar)
            for name, (path, bar) in pages.items()
        }


def _milliseconds(client: TestClient, path: str, *, clock: Callable[[], float], fragment: bool) -> float:
    took = []
    for _ in range(REQUESTS):
        started = clock()
        answer = client.get(path, headers={"hx-request": "true"} if fragment else {})
        took.append(1000 * (clock() - started))
        assert answer.status_code == 200, answer.text
    return statistics.median(took)


if __name__ == "__main__":
    sys.exit(main())
