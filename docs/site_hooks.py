"""What the documentation site adds to the pages in `docs`: those of the project as a whole, and the examples.

MkDocs calls these functions by their names (`hooks` in mkdocs.yml).
"""
# ruff: noqa: INP001 - MkDocs loads this file by its path

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parent.parent
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_OUT_OF_DOCS = re.compile(rf"\]\(\.\./\.\./(?={'|'.join(map(re.escape, PAGES))}|examples/)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the root of the repository, and the examples as they are."""
    for path in (*(ROOT / page for page in PAGES), *sorted((ROOT / "examples").glob("*.py"))):
        text = path.read_text(encoding="utf-8")
        if path.name in PAGES:
            text = text.replace("](docs/", "](")
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Change links out of `docs` to the files that `on_files` added."""
    return _OUT_OF_DOCS.sub("](../", markdown)
