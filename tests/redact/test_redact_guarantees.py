"""What holds for every text: nothing is raised, nothing changes twice, and failure withholds the text."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from leporello.errors import RedactionError
from leporello.redact import WITHHELD, Secret, redact, redact_value, redactor, secrets
from leporello.redact.redactor import FINDERS, Finder, _redact, _search

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.redact.spans import Subject

FRAGMENTS = [
    "password", "api_key", "token", "=", ":", " ", '"', "'", "\\", "\n", "\\n", "[REDACTED:password]",
    "hunter2", "$", "://", "@", "bob", "ghp_", "a1B2" * 9, "sk-", "sk-ant-", "eyJ", "eyJhbGciOiJIUzI1NiJ9", ".",
    "-", "--", " -p", "mysql", "curl", "Authorization", "Bearer ", "Basic ", "Cookie", ";", "%3D", "%22",
    "-----BEGIN RSA PRIVATE KEY-----", "A" * 40, "-----END RSA PRIVATE KEY-----", "密码是", "，", "0" * 32, "-us1",
    "login", "machine", "<", ">", "xoxb-", "AKIA", "Z9" * 8,
]  # fmt: skip
mixtures = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=8)), max_size=30).map("".join)
words = st.lists(st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12), max_size=60).map(" ".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | mixtures,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FRAGMENTS) | st.text(max_size=5), inner)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(mixtures)
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(str(once)) == once


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    assert isinstance(redact(text), str)


@given(words)
def test_plain_words_are_kept(text: str) -> None:
    assert redact(text) == text


@pytest.mark.slow
@given(mixtures)
def test_secrets_are_in_order_apart_and_inside_the_text(text: str) -> None:
    found = secrets(text)
    places = [0, *(place for secret in found for place in (secret.start, secret.end)), len(text)]
    assert places == sorted(places)
    assert all(secret.start < secret.end for secret in found)


@pytest.mark.slow
@given(json_values)
def test_redacting_a_structure_twice_changes_nothing_more(value: object) -> None:
    once = redact_value(value)
    assert redact_value(once) == once


def _raises(subject: Subject) -> Iterator[Secret]:
    yield Secret(kind="x", start=0, end=1)
    raise ValueError(subject.text)


def _never_satisfied(subject: Subject) -> Iterator[Secret]:
    yield Secret(kind="again", start=0, end=1)


@pytest.mark.parametrize("defect", [_raises, _never_satisfied])
def test_a_finder_that_fails_withholds_the_text(defect: Finder, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="leporello"):
        assert _redact("the text with hunter2 in it", (*FINDERS, defect)) == WITHHELD
    assert "withheld" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_text_beyond_the_bound_is_withheld(caplog: pytest.LogCaptureFixture) -> None:
    text = "a" * (redactor._LONGEST_TEXT + 1)
    assert redact(text) == WITHHELD
    assert "longer than" in caplog.text
    with pytest.raises(RedactionError, match="longer than"):
        secrets(text)


def test_what_is_no_text_is_withheld() -> None:
    assert redact(b"password=hunter2") == WITHHELD  # type: ignore[arg-type]


def test_a_lone_surrogate_does_not_hide_a_secret() -> None:
    assert redact("\ud800 password=hunter2 \udfff") == "\ud800 password=[REDACTED:password] \udfff"


def test_the_notices_are_stable() -> None:
    assert redact(WITHHELD) == WITHHELD
    assert redact("[REDACTED:password]") == "[REDACTED:password]"
    assert redact("password: [REDACTED:password]") == "password: [REDACTED:password]"


def test_a_structure_deeper_than_the_bound_is_withheld_there() -> None:
    value: object = "hunter2"
    for _ in range(5000):
        value = [value]
    assert "hunter2" not in str(_flattened(redact_value(value)))


def _flattened(value: object) -> object:
    while isinstance(value, list):
        (value,) = value
    return value


def test_the_first_find_names_what_overlaps() -> None:
    token = "ghp_" + "a1B2" * 9
    assert [secret.kind for secret in _search(f"password={token}", FINDERS)] == ["github-token"]


HOSTILE = [
    'token="AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA."', "secret: aaBBaaBBaaBBaaBBaaBBaaBBaaBBaaBB-.\n",
    "sk-", "sk-ant-\n", "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----\n",
    "-----END RSA PRIVATE KEY-----\n", "a@a@a:", "password=", "password='", 'password="', "password: ", "key=",
    "A1b2", "A", "eyJ", "-eyJ", "eyJ.", "%22eyJ", "0meyJ", "eyJaaaaaaaaaaaaaaaaa\n", "://a:", "://a:b@", ".",
    "-", " -p", "mysql -p", "--password ", "Cookie: ", "cookie=a=b;", "%3D", "password%3D", "密码是", "ATATT3",
    "xoxb-", "\\", "\n", "\\n", '"', "Authorization: ", 'token="a ', "hook", "machine a login b ",
    "0123456789abcdef0123456789abcdef-", "A" * 64 + "\n", "[", "(", "Private-Lines: 1\n",
    "00", "-00aA", "v1.0-", "1//0", "1%2F%2F0", "snyk_uat.", "\\npassword: ", "\\t\\tpassword: a\\", "cmVmdGtuO",
]  # fmt: skip
_FINISHES = (
    "import sys; from leporello.redact import redact; [redact((h * (n // len(h) + 1))[:n]) for h in {0} for n in [{1}]]"
)


def finishes(code: str, *, seconds: float) -> bool:
    """Tell whether a program ends within a time that only runaway work exceeds."""
    try:
        subprocess.run([sys.executable, "-c", code], check=True, timeout=seconds, capture_output=True)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.slow
def test_hostile_text_takes_no_runaway_time() -> None:
    assert finishes(_FINISHES.format(HOSTILE, 100_000), seconds=300)


@pytest.mark.slow
@pytest.mark.parametrize("hostile", HOSTILE)
def test_two_megabytes_of_hostile_text_take_no_runaway_time(hostile: str) -> None:
    assert finishes(_FINISHES.format([hostile], 2_000_000), seconds=120)


@pytest.mark.slow
def test_runaway_time_is_noticed() -> None:
    """The same check rejects a pattern that backtracks without bound."""
    assert not finishes("import re; re.search(r'(a+)+$', 'a' * 40 + 'b')", seconds=2)


def check_steps(step: int, view: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is searched in steps holds the secrets that it holds as a whole."""
    whole = secrets(text)
    with monkeypatch.context() as patch:
        patch.setattr(redactor, "_STEP", step)
        patch.setattr(redactor, "_VIEW", view)
        assert secrets(text) == whole


@pytest.mark.slow
@given(text=mixtures, step=st.integers(min_value=3, max_value=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_steps_find_what_one_search_finds(text: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_steps(step, 2_000, text, monkeypatch)


def test_steps_without_a_view_of_what_surrounds_them_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        check_steps(8, 0, "the password=hunter2Secret9 was changed", monkeypatch)


def test_a_secret_that_goes_on_beyond_the_view_is_found_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    check_steps(40, 10, "plain words before it, password=" + "a1B2" * 60 + " and words behind it", monkeypatch)


# short texts of plain words are not searched

PROSE_FRAGMENTS = [
    "password", "login", "machine", "default", "PRIVATE KEY", "token", "bob", "a1B2", "z" * 19, "x" * 20, "it's", " ",
    "\n", ".", ",", ";", "?", "!", '"', "(", ")", "/", "=", ":", ">", "-", "%3A", "Q~", "\\u", "密码是", "\r",
]  # fmt: skip
prose = st.lists(
    st.sampled_from(PROSE_FRAGMENTS) | st.text(alphabet="abcXYZ019_", max_size=24),
    max_size=40,
).map("".join)


@settings(max_examples=500)
@given(prose)
def test_a_text_that_is_not_searched_holds_no_secret(text: str) -> None:
    assert redact(text) == _redact(text, FINDERS)


@pytest.mark.parametrize(
    "secret",
    [
        "machine example.org login bob password hunter2secret",
        "default login bob password hunter2secret",
        "password: hunter2secret",
        "password=hunter2secret",
        "<password>hunter2secret",
        "mysql -phunter2secret",
        "https://bob:hunter2secret@example.org",
        "ghp_" + "a1B2" * 9,
    ],
)
def test_a_short_text_with_a_secret_is_searched(secret: str) -> None:
    assert "hunter2secret" not in redact(secret)
    assert "a1B2a1B2" not in redact(secret)


def test_a_check_that_takes_every_word_for_plain_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: long words and all signs pass."""
    monkeypatch.setattr(redactor, "_PROSE", re.compile(r".*", re.DOTALL))
    with pytest.raises(AssertionError):
        test_a_short_text_with_a_secret_is_searched("ghp_" + "a1B2" * 9)
