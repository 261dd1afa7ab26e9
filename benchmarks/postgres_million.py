"""A store of a million messages: copied to PostgreSQL and back, killed on the way three times each, and measured.

    python -m benchmarks.postgres_million [--messages 1000000]

It takes most of an hour and six gigabytes. `benchmarks.postgres --fill`, `benchmarks.migration` and
`benchmarks.postgres --stores` do the same one after the other, and keep the stores.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from uuid import uuid4

from benchmarks import migration, postgres


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        first, measured, back = (str(folder / file) for file in ("first.db", "measured.db", "back.db"))
        url = f"{postgres.server(folder)}schema=m{uuid4().hex[:12]}"
        postgres.main(["--messages", str(options.messages), "--fill", first])
        print("\nfrom SQLite to PostgreSQL:\n", flush=True)
        failed = migration.main([first, url])
        print("\nfrom PostgreSQL to SQLite:\n", flush=True)
        failed = migration.main([url, back]) or failed
        shutil.copyfile(first, measured)  # measuring adds to both stores
        return postgres.main(["--stores", measured, url]) or failed


if __name__ == "__main__":
    raise SystemExit(main())
