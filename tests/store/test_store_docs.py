"""The pages about the store are true: every method is named."""

from __future__ import annotations

import re
from pathlib import Path

from leporello.store import Store

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "store.md"


def test_the_page_names_every_method() -> None:
    page = PAGE.read_text(encoding="utf-8")
    methods = {name for name in dir(Store) if not name.startswith("_")} - {"url", "close"}
    assert {"append", "add_nodes", "search", "purge"} <= methods
    assert {name for name in methods if not re.search(rf"`{name}\b", page)} == set()
