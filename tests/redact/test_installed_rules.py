"""Redaction rules of other packages: found, used everywhere, and never a reason for a secret to travel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello import Session
from leporello.errors import RedactionError
from leporello.redact import WITHHELD, pattern_rule, redact, redact_messages, redact_part, secrets
from leporello.redact.rules import installed_rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TICKET = "NIGHTINGALE"


class Site:
    """A folder of installed packages."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def install(self, code: str, target: str = "find") -> None:
        """Install a package with a rule; `code` is its module."""
        (self._folder / "harbour_rules.py").write_text(code)
        info = self._folder / "harbour_rules-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: harbour-rules\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[leporello.redaction_rules]\nharbour = harbour_rules:{target}\n")
        installed_rules.cache_clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    import sys

    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield Site(folder)
    sys.modules.pop("harbour_rules", None)
    monkeypatch.undo()
    installed_rules.cache_clear()


RULE = """
from leporello.redact import pattern_rule

find = pattern_rule("code-name", "(?:project )(?P<secret>NIGHTINGALE)")
"""


def test_a_rule_of_a_package_is_used_once_it_is_installed(site: Site) -> None:
    text = f"The project {TICKET} begins."
    assert redact(text) == text
    site.install(RULE)
    assert redact(text) == "The project [REDACTED:code-name] begins.", "also in prose without any sign of a secret"
    assert [secret.kind for secret in secrets(text)] == ["code-name"]
    assert TICKET not in str(redact_messages([{"role": "user", "content": text}]))
    assert redact("PASSWORD=hunter2") == "PASSWORD=[REDACTED:password]", "ours are used too"


def test_what_a_rule_finds_reaches_no_summary(site: Site, tmp_path: Path) -> None:
    site.install(RULE)
    with Session.open("h", model="m", context_length=2_000, store=tmp_path / "h.db", config={}, llm=None) as session:
        for turn in range(12):
            session.add({"role": "user", "content": f"Turn {turn} of project {TICKET}. {'All is quiet. ' * 60}"})
            window = session.request()["messages"]
            session.record({"choices": [{"message": {"role": "assistant", "content": "Good."}}]})
        assert session.usage().compactions
    written = [text for one in window if not (text := str(one["content"])).startswith(("Turn", "Good"))]
    assert "[REDACTED:code-name]" in str(written)
    assert TICKET not in str(written)


def _yields(**fields: Any) -> str:
    """Return the code of a rule that yields a secret with these fields."""
    secret = {"kind": "x", "start": 0, "end": 3, **fields}
    return f"from leporello.redact import Secret\n\ndef find(text):\n    yield Secret(**{secret})\n"


@pytest.mark.parametrize(
    ("code", "target", "told"),
    [
        ("import nothing_like_this\n", "find", "cannot be used (ModuleNotFoundError"),
        ("find = 3\n", "find", "is not a function"),
        ("def find(text):\n    raise ValueError(text)\n", "find", "failed (ValueError)"),
        ("def find(text):\n    return [(0, 3)]\n", "find", "yields a tuple, not a Secret"),
        (
            "from leporello.redact import Secret\n\ndef find(text):\n    yield Secret(kind='x', start=0, end=999)\n",
            "find",
            "outside of the text",
        ),
        (
            "from leporello.redact import Secret\n\ndef find(text):\n    yield Secret(kind='A]', start=0, end=3)\n",
            "find",
            "names a kind",
        ),
        ("import sys\n\ndef find(text):\n    sys.exit(text)\n", "find", "failed (SystemExit)"),
        ("import sys\n\nsys.exit(3)\n", "find", "cannot be used (SystemExit)"),
        (_yields(kind=None), "find", "names a kind"),
        (_yields(start="0"), "find", "no whole number"),
        (_yields(start=0.0), "find", "no whole number"),
        (_yields(start=False), "find", "no whole number"),
        (_yields(end=None), "find", "no whole number"),
    ],
)
def test_a_rule_that_cannot_do_its_work_withholds_the_text(site: Site, code: str, target: str, told: str) -> None:
    site.install(code, target)
    with pytest.raises(RedactionError) as raised:
        secrets(f"The project {TICKET} begins.")
    assert told in str(raised.value)
    assert "'harbour' of the package harbour-rules" in str(raised.value)
    assert TICKET not in str(raised.value)
    assert redact(f"The project {TICKET} begins.") == WITHHELD
    assert redact_part(f"The project {TICKET} begins.", 4, 20) == WITHHELD


def test_what_the_code_of_a_rule_says_when_it_is_loaded_is_not_logged(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.install("raise RuntimeError('no answer from postgres://ada:hunter22@rules.example/db')\n")
    assert redact("The harbour is quiet.") == WITHHELD
    assert "cannot be used (RuntimeError)" in caplog.text
    assert "hunter22" not in caplog.text


@pytest.mark.parametrize(
    ("pattern", "secret"),
    [
        (r"ticket (?P<secret>\d+)|pass \d+", ["12", "pass 34"]),
        (r"(?:pass )(?P<secret>\d*)", ["34"]),
        (r"\d*", ["12", "34"]),
    ],
)
def test_a_pattern_whose_group_matches_nothing_hides_the_whole_match(pattern: str, secret: list[str]) -> None:
    text = "ticket 12, pass 34"
    found = list(pattern_rule("number", pattern)(text))
    assert [text[one.start : one.end] for one in found] == secret
