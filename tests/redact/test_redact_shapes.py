"""Every published shape, in every surrounding, is replaced, and nothing else is."""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import pytest

from leporello.redact import redact, secrets
from leporello.redact.redactor import FINDERS, _redact

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
ALNUM = UPPER + LOWER + DIGITS
URL64 = ALNUM + "_-"
HEX = "0123456789abcdef"
BASE64 = ALNUM + "+/"
BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"

Make = Callable[[random.Random], str]


def run(alphabet: str, length: int) -> Make:
    """Make random text that begins and ends with a letter or a digit."""
    edges = [sign for sign in alphabet if sign.isalnum()]

    def make(rng: random.Random) -> str:
        middle = "".join(rng.choice(alphabet) for _ in range(length - 2))
        return rng.choice(edges) + middle + rng.choice(edges)

    return make


def parts(*pieces: str | Make) -> Make:
    return lambda rng: "".join(piece if isinstance(piece, str) else piece(rng) for piece in pieces)


def jwt(rng: random.Random) -> str:
    def segment(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"sub": run(DIGITS, 10)(rng), "name": run(LOWER, 8)(rng), "iat": rng.randrange(10**9)}
    return f"{segment({'alg': 'HS256', 'typ': 'JWT'})}.{segment(claims)}.{run(URL64, 43)(rng)}"


SHAPES: dict[str, Make] = {
    "openai legacy": parts("sk-", run(ALNUM, 20), "T3BlbkFJ", run(ALNUM, 20)),
    "openai project": parts("sk-proj-", run(URL64, 74), "T3BlbkFJ", run(URL64, 74)),
    "openai service account": parts("sk-svcacct-", run(URL64, 58), "T3BlbkFJ", run(URL64, 58)),
    "anthropic": parts("sk-ant-api03-", run(URL64, 93), "AA"),
    "anthropic admin": parts("sk-ant-admin01-", run(URL64, 93), "AA"),
    "openrouter": parts("sk-or-v1-", run(HEX, 64)),
    "deepseek": parts("sk-", run(HEX, 32)),
    "huggingface": parts("hf_", run(UPPER + LOWER, 33), "7"),
    "replicate": parts("r8_", run(ALNUM, 37)),
    "groq": parts("gsk_", run(ALNUM, 52)),
    "xai": parts("xai-", run(ALNUM, 80)),
    "perplexity": parts("pplx-", run(ALNUM, 48)),
    "nvidia": parts("nvapi-", run(URL64, 64)),
    "langsmith": parts("lsv2_pt_", run(HEX, 32), "_", run(HEX, 10)),
    "github classic": parts("ghp_", run(ALNUM, 36)),
    "github oauth": parts("gho_", run(ALNUM, 36)),
    "github user": parts("ghu_", run(ALNUM, 36)),
    "github server": parts("ghs_", run(ALNUM, 36)),
    "github refresh": parts("ghr_", run(ALNUM, 76)),
    "github fine-grained": parts("github_pat_", run(ALNUM, 22), "_", run(ALNUM, 59)),
    "gitlab": parts("glpat-", run(URL64, 20)),
    "gitlab runner": parts("glrt-", run(URL64, 20)),
    "atlassian": parts("ATATT3xFfGF0", run(URL64, 170), "=", run(UPPER + DIGITS, 8)),
    "npm": parts("npm_", run(ALNUM, 36)),
    "pypi": parts("pypi-AgEIcHlwaS5vcmc", run(URL64, 130)),
    "rubygems": parts("rubygems_", run(HEX, 48)),
    "docker": parts("dckr_pat_", run(URL64, 27)),
    "aws id": parts("AKIA", run(UPPER + "234567", 16)),
    "aws temporary id": parts("ASIA", run(UPPER + "234567", 16)),
    "google api": parts("AIza", run(URL64, 35)),
    "google oauth": parts("ya29.", run(URL64, 160)),
    "google client secret": parts("GOCSPX-", run(URL64, 28)),
    "digitalocean": parts("dop_v1_", run(HEX, 64)),
    "heroku": parts("HRKU-", run(URL64, 60)),
    "databricks": parts("dapi", run(HEX, 32)),
    "doppler": parts("dp.pt.", run(ALNUM, 43)),
    "vault": parts("hvs.", run(URL64, 90)),
    "terraform": parts(run(ALNUM, 14), ".atlasv1.", run(URL64, 67)),
    "azure client secret": parts(run(ALNUM, 3), "8Q~", run(ALNUM + "_.~-", 34)),
    "slack bot": parts("xoxb-", run(DIGITS, 12), "-", run(DIGITS, 12), "-", run(ALNUM, 24)),
    "slack user": parts("xoxp-", run(DIGITS, 12), "-", run(DIGITS, 12), "-", run(DIGITS, 12), "-", run(HEX, 32)),
    "slack app": parts("xapp-1-", run(UPPER + DIGITS, 11), "-", run(DIGITS, 13), "-", run(HEX, 64)),
    "stripe": parts("sk_live_", run(ALNUM, 24)),
    "stripe restricted": parts("rk_live_", run(ALNUM, 99)),
    "stripe webhook": parts("whsec_", run(ALNUM, 32)),
    "twilio": parts("SK", run(HEX, 32)),
    "sendgrid": parts("SG.", run(URL64, 22), ".", run(URL64, 43)),
    "mailgun": parts("key-", run(HEX, 32)),
    "mailchimp": parts(run(HEX, 32), "-us21"),
    "linear": parts("lin_api_", run(ALNUM, 40)),
    "notion": parts("ntn_", run(DIGITS, 11), run(ALNUM, 35)),
    "notion older": parts("secret_", run(ALNUM, 43)),
    "figma": parts("figd_", run(URL64, 40)),
    "shopify": parts("shpat_", run(HEX, 32)),
    "square": parts("EAAA", run(URL64, 60)),
    "square secret": parts("sq0csp-", run(URL64, 43)),
    "telegram": parts(run("123456789", 10), ":AA", run(URL64, 33)),
    "discord": parts("M", run(ALNUM, 25), ".", run(URL64, 6), ".", run(URL64, 38)),
    "jwt": jwt,
    "age": parts("AGE-SECRET-KEY-1", run(BECH32.upper(), 58)),
    "grafana service account": parts("glsa_", run(ALNUM, 32), "_", run(HEX, 8)),
    "newrelic": parts("NRAK-", run(UPPER + DIGITS, 27)),
    "sentry user": parts("sntryu_", run(HEX, 64)),
    "postman": parts("PMAK-", run(HEX, 24), "-", run(HEX, 34)),
    "airtable": parts("pat", run(ALNUM, 14), ".", run(HEX, 64)),
    "dropbox": parts("sl.", run(URL64, 136)),
    "supabase": parts("sbp_", run(HEX, 40)),
    "tailscale": parts("tskey-auth-", run(ALNUM, 12), "-", run(ALNUM, 32)),
    "pulumi": parts("pul-", run(HEX, 40)),
}
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


@pytest.mark.parametrize("name", SHAPES)
def test_a_published_shape_is_replaced_in_every_surrounding(name: str) -> None:
    problems = [(case.text, wrong) for case in cases(SHAPES[name]) if (wrong := problem(case, redact(case.text)))]
    assert not problems


def wrapped(secret: str, wrap: str, rng: random.Random) -> str:
    """Break a token where a terminal of 80 columns would."""
    cut = rng.randrange(max(len(secret) // 3, len(secret) - 60), min(60, len(secret) * 2 // 3) + 1)
    line = "the line before it ends here and then the token is printed at last: token is "
    return f"{line[-(80 - cut) :]}{secret[:cut]}{WRAPS[wrap]}{secret[cut:]} and more"


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("name", [name for name in SHAPES if name not in UNPREFIXED])
def test_a_token_with_a_line_break_in_it_is_replaced(name: str, wrap: str) -> None:
    rng = random.Random(name + wrap)
    for _ in range(8):
        secret = SHAPES[name](rng)
        if len(secret) > 110 or (wrap == "indented" and len(secret) < 60):
            continue
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
