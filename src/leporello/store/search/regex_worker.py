"""The process that runs regular expressions: it can be killed, which a running expression cannot.

It reads lines of JSON: first the expression, then lists of texts; to each list it answers with a list of positions, -1
for no match. It is started as a file, with nothing but the standard library.
"""

from __future__ import annotations

import json
import re
import sys


def main() -> None:
    """Answer until there are no more lines."""
    expression = re.compile(json.loads(sys.stdin.readline()), re.IGNORECASE | re.MULTILINE)
    for line in sys.stdin:
        found = (expression.search(text) for text in json.loads(line))
        sys.stdout.write(json.dumps([match.start() if match else -1 for match in found]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
