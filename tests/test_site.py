"""The documentation site builds without a warning: every link leads somewhere, every page can be found."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=source, capture_output=True, text=True, check=False, env=environment)


def copy(folder: Path) -> Path:
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "mkdocs.yml", *ROOT.glob("*.md")):
        shutil.copy(path, folder)
    return folder


def test_the_site_builds(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = [page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")]
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))
    loaded = re.compile(
        r'<(?:script|img|iframe)[^>]*\ssrc="?(?:https?:)?//|<link[^>]*rel="?stylesheet[^>]*href="?(?:https?:)?//'
    )
    assert [page for page in pages if loaded.search(page)] == []


@pytest.mark.parametrize(
    ("page", "text", "problem"),
    [
        ("how-to/wrap.md", "\n[here](nowhere.md)\n", "nowhere.md"),
        ("how-to/wrap.md", "\n[here](gateway.md#nowhere)\n", "#nowhere"),
        ("how-to/forgotten.md", "# Forgotten\n", "forgotten.md"),
    ],
    ids=["a page that is not there", "a heading that is not there", "a page that no menu leads to"],
)
def test_planted_a_defect_is_found(tmp_path: Path, page: str, text: str, problem: str) -> None:
    source = copy(tmp_path)
    with (source / "docs" / page).open("a", encoding="utf-8") as file:
        file.write(text)
    done = build(source, tmp_path / "site")
    assert done.returncode != 0
    assert problem in done.stderr
