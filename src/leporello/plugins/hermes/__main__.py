"""`python -m leporello.plugins.hermes SCRIPT [ARGUMENTS...]`: run a script that imports the names of Hermes Agent."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from leporello.plugins.hermes.finder import install

USAGE = "usage: python -m leporello.plugins.hermes SCRIPT [ARGUMENTS...]"


def main(argv: list[str]) -> int:
    """Run the script as `python SCRIPT` would."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, file=sys.stderr if not argv else sys.stdout)
        return 0 if argv else 2
    script = Path(argv[0])
    if not script.is_file():
        print(f"{USAGE}\n{script}: there is no such file", file=sys.stderr)  # noqa: T201 - a command
        return 2
    install()
    sys.argv = argv
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
