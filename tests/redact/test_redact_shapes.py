"""Every published shape, in every surrounding, is replaced, and nothing else is."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from leporello.redact import redact, secrets
from leporello.redact.redactor import FINDERS, _redact
from leporello.testing.secrets import BASE64, SHAPES, Make, run

if TYPE_CHECKING:
    from collections.abc import Callable

UNPREFIXED = {"terraform", "azure client secret", "mailchimp", "telegram", "discord"}

SURROUNDINGS: dict[str, Callable[[str], tuple[str, str, str]]] = {
    "alone": lambda secret: ("", secret, ""),
    "sentence": lambda secret: ("I used ", secret, " for it."),
    "json": lambda secret: ('{"output": "value ', secret, '", "n": 1}'),
    "escaped json": lambda secret: (r"{\"output\": \"line\n", secret, r"\"}"),
    "shell": lambda secret: ("$ export CI_VALUE='", secret, "' && make"),
    "address": lambda secret: ("https://host.example/path?next=1&v=", quote(secret, safe=""), "&page=2"),
    "percent-encoded": lambda secret: (
        "https://host.example/cb?state=%7B%22v%22%3A%22",
        quote(secret, safe=""),
        "%22%7D",
    ),
    "yaml": lambda secret: ("env:\n  - name: value\n    value: ", secret, "\n  - name: next\n"),
    "stack trace": lambda secret: ('  File "a.py", line 3, in call\n    send("', secret, '")\nValueError: no'),
    "chinese": lambda secret: ("我的密钥是这个：", secret, "，请保存好"),
    "chinese without marks": lambda secret: ("令牌在这里", secret, "不要外传"),
    "markdown": lambda secret: ("- use `", secret, "` here"),
    "coloured": lambda secret: ("\x1b[32m", secret, "\x1b[0m ok"),
}
WRAPS: dict[str, str] = {"terminal": "\n", "windows": "\r\n", "shell": "\\\n", "escaped": r"\n", "indented": "\n    "}


@dataclass(frozen=True, kw_only=True)
class Case:
    before: str
    secret: str
    after: str

    @property
    def text(self) -> str:
        return self.before + self.secret + self.after


def leaks(secret: str, output: str) -> list[str]:
    """Return the pieces of a secret that are still in a text."""
    rest = re.sub(r"\[REDACTED:[a-z0-9-]+\]", "", output)
    return [secret[at : at + 8] for at in range(max(1, len(secret) - 7)) if secret[at : at + 8] in rest]


def problem(case: Case, output: str) -> str:
    """Say what is wrong with a redacted text: the one check of this file."""
    if leaks(case.secret, output):
        return f"a piece of the secret is left: {output!r}"
    pattern = re.escape(case.before) + r"\[REDACTED:[a-z0-9-]+\]" + re.escape(case.after)
    return "" if re.fullmatch(pattern, output) else f"the surroundings changed: {output!r}"


def cases(shape: Make, seeds: int = 6) -> list[Case]:
    found = []
    for seed in range(seeds):
        secret = shape(random.Random(seed))
        for surround in SURROUNDINGS.values():
            before, inner, after = surround(secret)
            found.append(Case(before=before, secret=inner, after=after))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_a_published_shape_is_replaced_in_every_surrounding(name: str) -> None:
    problems = [(case.text, wrong) for case in cases(SHAPES[name]) if (wrong := problem(case, redact(case.text)))]
    assert not problems


def wrapped(secret: str, wrap: str, rng: random.Random) -> str:
    """Break a token where a terminal of 80 columns would."""
    cut = rng.randrange(max(len(secret) // 3, len(secret) - 60), min(60, len(secret) * 2 // 3) + 1)
    line = "the line before it ends here and then the token is printed at last: token is "
    return f"{line[-(80 - cut) :]}{secret[:cut]}{WRAPS[wrap]}{secret[cut:]} and more"


@pytest.mark.slow
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("name", [name for name in SHAPES if name not in UNPREFIXED])
def test_a_token_with_a_line_break_in_it_is_replaced(name: str, wrap: str) -> None:
    rng = random.Random(name + wrap)
    for _ in range(8):
        secret = SHAPES[name](rng)
        if len(secret) > 110 or (wrap == "indented" and len(secret) < 60) or len(secret) < 30:
            continue  # one so short would be broken inside its prefix
        output = redact(wrapped(secret, wrap, rng))
        assert leaks(secret, output) == []
        assert output.endswith(" and more")


def test_a_token_longer_than_a_line_is_replaced() -> None:
    for name in ("openai project", "pypi", "google oauth", "jwt", "dropbox", "atlassian"):
        secret = SHAPES[name](random.Random(name))
        lines = [secret[at : at + 72] for at in range(0, len(secret), 72)]
        output = redact("$ cat it\n" + "\n".join(lines) + "\n$ next")
        assert leaks(secret, output) == []
        assert output.endswith("\n$ next")


@pytest.mark.parametrize("name", ["github classic", "anthropic", "mailchimp", "jwt"])
def test_the_check_notices_a_missing_finder(name: str) -> None:
    """A redactor without the finder of these shapes fails the check that the real one passes."""
    broken = tuple(find for find in FINDERS if find.__name__ != "find_tokens")
    assert any(problem(case, _redact(case.text, broken)) for case in cases(SHAPES[name], seeds=1))


def test_the_check_notices_a_redactor_that_takes_too_much() -> None:
    case = Case(before="keep ", secret="ghp_" + "a1B2" * 9, after=" keep")
    assert problem(case, redact(case.text)) == ""
    assert problem(case, "[REDACTED:github-token]")


@pytest.mark.parametrize("prefix", ["ghp_", "sk-", "sk-ant-api03-", "npm_", "glpat-", "xai-"])
@pytest.mark.parametrize("letter", ["a", "A", "0"])
def test_a_token_of_one_repeated_letter_is_replaced_too(prefix: str, letter: str) -> None:
    body = letter * {"xai-": 80, "sk-": 48}.get(prefix, 36)
    assert body not in redact(f"use {prefix}{body} here")


def test_places_and_kinds_are_told() -> None:
    token = SHAPES["github classic"](random.Random(1))
    (found,) = secrets(f"see {token}.")
    assert (found.kind, found.start, found.end) == ("github-token", 4, 4 + len(token))


def test_every_shape_has_a_kind_of_its_own_or_of_its_family() -> None:
    kinds = {name: secrets(make(random.Random(2)))[0].kind for name, make in SHAPES.items()}
    assert len(set(kinds.values())) >= 40


KEY_LINES = [run(BASE64, 64)(random.Random(line)) for line in range(12)] + [run(BASE64, 30)(random.Random(99)) + "=="]
LABELS = [
    "RSA PRIVATE KEY",
    "EC PRIVATE KEY",
    "DSA PRIVATE KEY",
    "PRIVATE KEY",
    "ENCRYPTED PRIVATE KEY",
    "OPENSSH PRIVATE KEY",
    "PGP PRIVATE KEY BLOCK",
]


@pytest.mark.parametrize("joint", ["\n", r"\n", r"\\n", "\r\n", "\n    ", "\n> "])
@pytest.mark.parametrize("label", LABELS)
def test_a_private_key_block_is_replaced(label: str, joint: str) -> None:
    block = joint.join([f"-----BEGIN {label}-----", *KEY_LINES, f"-----END {label}-----"])
    assert redact(f"key: {block} after") == "key: [REDACTED:private-key] after"


@pytest.mark.parametrize("joint", ["\n", r"\n"])
def test_a_key_that_is_cut_off_is_replaced_as_far_as_it_goes(joint: str) -> None:
    head = joint.join(["-----BEGIN RSA PRIVATE KEY-----", *KEY_LINES[:5]])
    tail = joint.join([*KEY_LINES[5:], "-----END RSA PRIVATE KEY-----"])
    assert redact(f"{head}{joint}and then the log went on") == f"[REDACTED:private-key]{joint}and then the log went on"
    assert redact(f"the log before{joint}{tail} after") == f"the log before{joint}[REDACTED:private-key] after"


def test_a_block_with_headers_and_line_numbers_is_replaced() -> None:
    lines = ["-----BEGIN RSA PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,0A1B", "", *KEY_LINES]
    numbered = "\n".join(f"{number:6}→{line}" for number, line in enumerate(lines, 1))
    output = redact(numbered)
    assert not any(line[:12] in output for line in KEY_LINES[:-1])


def test_a_putty_key_is_replaced() -> None:
    output = redact("Private-Lines: 3\n" + "\n".join(KEY_LINES[:3]) + "\nPrivate-MAC: 00")
    assert not any(line[:12] in output for line in KEY_LINES[:3])


def test_code_that_names_the_marks_of_a_key_is_kept() -> None:
    code = 'if "-----BEGIN RSA PRIVATE KEY-----" in text and "-----END RSA PRIVATE KEY-----" in text:'
    assert redact(code) == code
