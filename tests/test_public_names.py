"""The public surface: what `leporello` exports, and what importing it costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docs import public_names

import leporello

if TYPE_CHECKING:
    from collections.abc import Callable

STANDARD = frozenset(sys.stdlib_module_names)
ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "leporello"
PAGE = ROOT / "docs" / "reference" / "public-names.md"

Names = dict[str, set[str]]
"""The public names of each package."""


def modules_after(statement: str) -> set[str]:
    """Run a statement in a fresh, isolated interpreter and return the names of the packages it loaded."""
    script = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_every_public_name_exists() -> None:
    assert [name for name in leporello.__all__ if getattr(leporello, name, None) is None] == []


def test_all_is_sorted_and_complete() -> None:
    assert sorted(leporello.__all__) == leporello.__all__
    assert set(leporello._HOMES) | {"__version__"} == set(leporello.__all__)
    assert set(leporello.__all__) <= set(dir(leporello))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Leporelo'"):
        _ = leporello.Leporelo


@pytest.mark.parametrize(
    "statement", ["import leporello", "from leporello import ContextEngine", "import leporello.messages"]
)
def test_importing_loads_no_third_party_module(statement: str) -> None:
    assert modules_after(statement) - STANDARD == {"leporello"}


def test_the_check_can_fail() -> None:
    assert "pydantic" in modules_after("from leporello import Config")


def exported() -> Names:
    """Return what the packages export."""
    return {package: set(public_names.exported(package)) for package in public_names.packages()}


def listed(page: str) -> Names:
    """Return what the tables of the reference list, by their headings."""
    tables = re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return {package: set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) for package, table in tables}


@dataclass
class Surface:
    """What `leporello` and its packages export, and what the reference lists."""

    top: dict[str, str] = field(default_factory=lambda: dict(leporello._HOMES))
    packages: Names = field(default_factory=exported)
    page: Names = field(default_factory=lambda: listed(PAGE.read_text(encoding="utf-8")))

    def disagreements(self) -> list[str]:
        """Return where the three do not agree on what is public."""
        found = [f"{home} does not export {name}" for name, home in self.top.items() if name not in self.packages[home]]
        for package, names in {**self.packages, "leporello": set(self.top)}.items():
            found += [f"the reference lacks {package}.{name}" for name in names - self.page.get(package, set())]
            found += [f"the reference has {package}.{name}" for name in self.page.get(package, set()) - names]
        return found + [f"the reference has {one}" for one in self.page.keys() - self.packages.keys() - {"leporello"}]


def test_what_is_public_is_exported_by_its_package_and_stands_in_the_reference() -> None:
    assert Surface().disagreements() == []


@pytest.mark.parametrize(
    ("defect", "said"),
    [
        (lambda it: it.top.update(Secret="leporello.session"), "leporello.session does not export Secret"),
        (lambda it: it.packages["leporello.store"].add("Extra"), "the reference lacks leporello.store.Extra"),
        (lambda it: it.packages["leporello.store"].remove("Hit"), "the reference has leporello.store.Hit"),
        (lambda it: it.page["leporello.agent"].remove("Agent"), "the reference lacks leporello.agent.Agent"),
        (lambda it: it.page["leporello"].add("Old"), "the reference has leporello.Old"),
        (lambda it: it.page.pop("leporello.lcm"), "the reference lacks leporello.lcm.verify"),
        (lambda it: it.page.update({"leporello.attic": {"A"}}), "the reference has leporello.attic"),
    ],
    ids=["not in its package", "not listed", "not exported", "left out", "renamed", "no table", "no package"],
)
def test_planted_a_name_that_is_missing_in_one_of_the_three_is_noticed(
    defect: Callable[[Surface], object], said: str
) -> None:
    surface = Surface()
    defect(surface)
    assert said in surface.disagreements()


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    for package, names in exported().items():
        assert [name for name in sorted(names) if not public_names.meaning(package, name)] == [], package
    assert public_names.page() == public_names.page(), "a name means something else once its module is imported"


def test_a_name_at_the_top_is_that_of_its_package() -> None:
    for name, home in leporello._HOMES.items():
        assert getattr(leporello, name) is getattr(import_module(home), name)


@pytest.mark.parametrize(
    "file", [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/*.py"))], ids=str
)
def test_pages_and_examples_import_public_names_only(file: Path) -> None:
    public = {**exported(), **public_names.FRAMEWORKS, "leporello": {*leporello._HOMES, "__version__"}}
    public["leporello.plugins"].add("hermes")
    imports = re.findall(
        r"^ *from (leporello[\w.]*) import \(?([^#\n)]*)", file.read_text(encoding="utf-8"), re.MULTILINE
    )
    taken = [(package, name.split()[0]) for package, names in imports for name in names.split(",") if name.strip()]
    assert [f"{package}.{name}" for package, name in taken if name not in public.get(package, ())] == []


def shared_names(sources: dict[str, str]) -> dict[str, list[str]]:
    """Return the names of public classes that several modules define, with those modules."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    return {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_no_two_public_classes_share_a_name() -> None:
    sources = {str(file.relative_to(SOURCE)): file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")}
    assert shared_names(sources) == {}
    assert shared_names({**sources, "attic.py": "class Session: ..."}) == {
        "Session": ["session/session.py", "attic.py"]
    }
