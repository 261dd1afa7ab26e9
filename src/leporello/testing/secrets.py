"""Made-up secrets in published shapes and under telling names, and the ways they stand in a conversation.

They are random, and belong to no one. A test plants them and then looks for pieces of them where none may be.
"""

from __future__ import annotations

import base64
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from random import Random

    from leporello.messages import Message

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
ALNUM = UPPER + LOWER + DIGITS
URL64 = ALNUM + "_-"
HEX = "0123456789abcdef"
BASE64 = ALNUM + "+/"
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_WORDS = (
    *("saddle", "horse", "battery", "staple", "sunshine", "orchard"),
    *("velvet", "lantern", "harbour", "meadow", "copper", "thistle"),
)

_PUBLIC = re.compile(r"[a-z]{6,7}_.?")  # the beginning of a prefix, such as `secret_`
_MARK = re.compile(r"\[REDACTED:[a-z0-9-]*\]?")

PIECE = 8
"""Characters of a secret in a row that are a leak."""

Make: TypeAlias = Callable[["Random"], str]


@dataclass(frozen=True, kw_only=True)
class Form:
    """One kind of secret: how one is made, and the words that it stands in, `{}` in its place."""

    name: str
    make: Make
    phrase: str = "{}"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A secret and the messages that hold it."""

    secret: str
    messages: list[Message]


def run(alphabet: str, length: int) -> Make:
    """Make random text that begins and ends with a letter or a digit."""
    edges = [sign for sign in alphabet if sign.isalnum()]

    def make(rng: Random) -> str:
        middle = "".join(rng.choice(alphabet) for _ in range(length - 2))
        return rng.choice(edges) + middle + rng.choice(edges)

    return make


def parts(*pieces: str | Make) -> Make:
    """Make text from fixed and random pieces."""
    return lambda rng: "".join(piece if isinstance(piece, str) else piece(rng) for piece in pieces)


def _uuid(rng: Random) -> str:
    return "-".join(run(HEX, length)(rng) for length in (8, 4, 4, 4, 12))


def _segment(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _jwt(rng: Random) -> str:
    claims = {"sub": run(DIGITS, 10)(rng), "name": run(LOWER, 8)(rng), "iat": rng.randrange(10**9)}
    return f"{_segment({'alg': 'HS256', 'typ': 'JWT'})}.{_segment(claims)}.{run(URL64, 43)(rng)}"


def _snyk(rng: Random) -> str:
    claims = {"e": rng.randrange(10**9), "h": "host.example", "j": run(ALNUM, 22)(rng), "s": run(ALNUM, 22)(rng)}
    return f"snyk_uat.{run(HEX, 8)(rng)}.{_segment(claims)}.{run(URL64, 86)(rng)}"


def _reference_token(rng: Random) -> str:
    return base64.b64encode(f"reftkn:01:{rng.randrange(10**9, 10**10)}:{run(ALNUM, 27)(rng)}".encode()).decode()


def _okta(rng: Random) -> str:
    return f"00{run(URL64, 36)(rng)}aZ3{rng.choice(DIGITS)}"


def _password_of_words(rng: Random) -> str:
    return "".join(rng.sample(_WORDS, 2))


def _password(rng: Random) -> str:
    return run(ALNUM, 9)(rng) + rng.choice("!%*+") + run(ALNUM, 4)(rng) + "7"


def _basic(rng: Random) -> str:
    return base64.b64encode(f"deploy:{run(ALNUM, 16)(rng)}".encode()).decode()


SHAPES: dict[str, Make] = {
    "openai legacy": parts("sk-", run(ALNUM, 20), "T3BlbkFJ", run(ALNUM, 20)),
    "openai project": parts("sk-proj-", run(URL64, 74), "T3BlbkFJ", run(URL64, 74)),
    "openai service account": parts("sk-svcacct-", run(URL64, 58), "T3BlbkFJ", run(URL64, 58)),
    "anthropic": parts("sk-ant-api03-", run(URL64, 93), "AA"),
    "anthropic admin": parts("sk-ant-admin01-", run(URL64, 93), "AA"),
    "openrouter": parts("sk-or-v1-", run(HEX, 64)),
    "deepseek": parts("sk-", run(HEX, 32)),
    "langfuse": parts("sk-lf-", _uuid),
    "huggingface": parts("hf_", run(UPPER + LOWER, 33), "7"),
    "replicate": parts("r8_", run(ALNUM, 37)),
    "groq": parts("gsk_", run(ALNUM, 52)),
    "xai": parts("xai-", run(ALNUM, 80)),
    "perplexity": parts("pplx-", run(ALNUM, 48)),
    "cerebras": parts("csk-", run(LOWER + DIGITS, 48)),
    "cerebras mixed": parts("csk-", run(ALNUM, 36)),
    "voyage": parts("pa-", run(URL64, 43)),
    "together": parts("tgp_v1_", run(URL64, 43)),
    "tavily": parts("tvly-dev-", run(ALNUM, 32)),
    "firecrawl": parts("fc-", run(HEX, 32)),
    "jina": parts("jina_", run(ALNUM, 60)),
    "pinecone": parts("pcsk_", run(ALNUM, 6), "_", run(ALNUM, 63)),
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
    "gitlab deploy": parts("gldt-", run(URL64, 20)),
    "atlassian": parts("ATATT3xFfGF0", run(URL64, 170), "=", run(UPPER + DIGITS, 8)),
    "bitbucket": parts("ATBB", run(ALNUM, 32)),
    "npm": parts("npm_", run(ALNUM, 36)),
    "pypi": parts("pypi-AgEIcHlwaS5vcmc", run(URL64, 130)),
    "rubygems": parts("rubygems_", run(HEX, 48)),
    "crates": parts("cio", run(ALNUM, 32)),
    "nuget": parts("oy2", run(LOWER + DIGITS, 43)),
    "docker": parts("dckr_pat_", run(URL64, 27)),
    "sourcegraph": parts("sgp_", run(HEX, 40)),
    "buildkite": parts("bkua_", run(HEX, 40)),
    "circleci": parts("CCIPAT_", run(ALNUM, 22), "_", run(HEX, 40)),
    "sonar user": parts("squ_", run(HEX, 40)),
    "sonar project": parts("sqp_", run(HEX, 40)),
    "sonar analysis": parts("sqa_", run(HEX, 40)),
    "artifactory": parts("AKCp", run(ALNUM, 69)),
    "artifactory reference": _reference_token,
    "snyk": _snyk,
    "aws id": parts("AKIA", run(UPPER + "234567", 16)),
    "aws temporary id": parts("ASIA", run(UPPER + "234567", 16)),
    "google api": parts("AIza", run(URL64, 35)),
    "google oauth": parts("ya29.", run(URL64, 160)),
    "google refresh": parts("1//0", run(URL64, 60)),
    "google client secret": parts("GOCSPX-", run(URL64, 28)),
    "digitalocean": parts("dop_v1_", run(HEX, 64)),
    "heroku": parts("HRKU-", run(URL64, 60)),
    "databricks": parts("dapi", run(HEX, 32)),
    "doppler": parts("dp.pt.", run(ALNUM, 43)),
    "vault": parts("hvs.", run(URL64, 90)),
    "alibaba": parts("LTAI", run(ALNUM, 20)),
    "planetscale": parts("pscale_tkn_", run(URL64, 43)),
    "netlify": parts("nfp_", run(ALNUM, 36)),
    "prefect": parts("pnu_", run(ALNUM, 36)),
    "dynatrace": parts("dt0c01.", run(UPPER + DIGITS, 24), ".", run(UPPER + DIGITS, 64)),
    "cloudflare origin": parts("v1.0-", run(HEX, 24), "-", run(HEX, 146)),
    "vercel personal": parts("vcp_", run(ALNUM, 56)),
    "vercel integration": parts("vci_", run(ALNUM, 40)),
    "vercel blob": parts("vercel_blob_rw_", run(ALNUM, 16), "_", run(ALNUM, 30)),
    "okta": _okta,
    "terraform": parts(run(ALNUM, 14), ".atlasv1.", run(URL64, 67)),
    "azure client secret": parts(run(ALNUM, 3), "8Q~", run(ALNUM + "_.~-", 34)),
    "slack bot": parts("xoxb-", run(DIGITS, 12), "-", run(DIGITS, 12), "-", run(ALNUM, 24)),
    "slack user": parts("xoxp-", run(DIGITS, 12), "-", run(DIGITS, 12), "-", run(DIGITS, 12), "-", run(HEX, 32)),
    "slack app": parts("xapp-1-", run(UPPER + DIGITS, 11), "-", run(DIGITS, 13), "-", run(HEX, 64)),
    "stripe": parts("sk_live_", run(ALNUM, 24)),
    "stripe restricted": parts("rk_live_", run(ALNUM, 99)),
    "stripe webhook": parts("whsec_", run(ALNUM, 32)),
    "razorpay": parts("rzp_live_", run(ALNUM, 14)),
    "shippo": parts("shippo_live_", run(HEX, 40)),
    "twilio": parts("SK", run(HEX, 32)),
    "sendgrid": parts("SG.", run(URL64, 22), ".", run(URL64, 43)),
    "mailgun": parts("key-", run(HEX, 32)),
    "mailchimp": parts(run(HEX, 32), "-us21"),
    "brevo": parts("xkeysib-", run(HEX, 64), "-", run(ALNUM, 16)),
    "resend": parts("re_", run(ALNUM, 8), "_", run(ALNUM, 24)),
    "hubspot": parts("pat-na1-", _uuid),
    "linear": parts("lin_api_", run(ALNUM, 40)),
    "notion": parts("ntn_", run(DIGITS, 11), run(ALNUM, 35)),
    "notion older": parts("secret_", run(ALNUM, 43)),
    "figma": parts("figd_", run(URL64, 40)),
    "shopify": parts("shpat_", run(HEX, 32)),
    "square": parts("EAAA", run(URL64, 60)),
    "square secret": parts("sq0csp-", run(URL64, 43)),
    "telegram": parts(run("123456789", 10), ":AA", run(URL64, 33)),
    "discord": parts("M", run(ALNUM, 25), ".", run(URL64, 6), ".", run(URL64, 38)),
    "jwt": _jwt,
    "age": parts("AGE-SECRET-KEY-1", run(_BECH32.upper(), 58)),
    "nostr": parts("nsec1", run(_BECH32, 58)),
    "wallet": parts("xprv", run(_BASE58, 107)),
    "grafana service account": parts("glsa_", run(ALNUM, 32), "_", run(HEX, 8)),
    "newrelic": parts("NRAK-", run(UPPER + DIGITS, 27)),
    "sentry user": parts("sntryu_", run(HEX, 64)),
    "postman": parts("PMAK-", run(HEX, 24), "-", run(HEX, 34)),
    "airtable": parts("pat", run(ALNUM, 14), ".", run(HEX, 64)),
    "dropbox": parts("sl.", run(URL64, 136)),
    "supabase": parts("sbp_", run(HEX, 40)),
    "tailscale": parts("tskey-auth-", run(ALNUM, 12), "-", run(ALNUM, 32)),
    "pulumi": parts("pul-", run(HEX, 40)),
    "contentful": parts("CFPAT-", run(URL64, 43)),
    "posthog": parts("phx_", run(ALNUM, 43)),
    "typeform": parts("tfp_", run(URL64, 44)),
    "easypost": parts("EZAK", run(ALNUM, 54)),
    "wakatime": parts("waka_", _uuid),
}
"""Secrets that their own shape gives away."""

NAMED: tuple[Form, ...] = (
    Form(name="setting", make=_password, phrase="DB_PASSWORD={}"),
    Form(name="setting of words", make=_password_of_words, phrase="POSTGRES_PASSWORD={}"),
    Form(name="quoted setting", make=_password_of_words, phrase='export SMTP_PASSWORD="{}"'),
    Form(name="yaml", make=_password, phrase="password: {}"),
    Form(name="yaml of words", make=_password_of_words, phrase="  db_password: {}"),
    Form(name="yaml at the margin", make=_password_of_words, phrase="passphrase: {}"),
    Form(name="quoted yaml", make=_password_of_words, phrase='password: "{}"'),
    Form(name="json member", make=_password_of_words, phrase='{{"user": "app", "password": "{}"}}'),
    Form(name="api key in json", make=run(HEX, 32), phrase='"apiKey": "{}",'),
    Form(name="client secret", make=run(URL64, 40), phrase="client_secret={}"),
    Form(name="vercel by name", make=run(ALNUM, 24), phrase="VERCEL_TOKEN={}"),
    Form(name="snyk by name", make=_uuid, phrase="SNYK_TOKEN={}"),
    Form(name="razorpay secret", make=run(ALNUM, 24), phrase="RAZORPAY_KEY_SECRET={}"),
    Form(name="hubspot by name", make=_uuid, phrase="https://api.host.example/contacts?hapikey={}&count=5"),
    Form(name="aws secret", make=run(BASE64, 40), phrase="aws_secret_access_key = {}"),
    Form(name="connection", make=_password, phrase="postgres://app:{}@db.host.example:5432/shop"),
    Form(name="cache connection", make=run(ALNUM, 18), phrase="redis://:{}@cache.host.example:6379/0"),
    Form(
        name="connection string",
        make=run(ALNUM, 16),
        phrase="Server=db;Database=shop;User Id=sa;Password={};Encrypt=yes",
    ),
    Form(name="cookie", make=run(URL64, 43), phrase="Cookie: theme=dark; session={}; lang=en"),
    Form(name="set cookie", make=run(URL64, 32), phrase="Set-Cookie: sid={}; Path=/; HttpOnly"),
    Form(name="bearer", make=run(URL64, 40), phrase="Authorization: Bearer {}"),
    Form(name="okta header", make=_okta, phrase="Authorization: SSWS {}"),
    Form(name="basic", make=_basic, phrase="Authorization: Basic {}"),
    Form(name="key header", make=run(HEX, 32), phrase="X-Api-Key: {}"),
    Form(name="netrc", make=_password, phrase="machine git.host.example login bob password {}"),
    Form(name="curl", make=_password, phrase="curl -u bob:{} https://host.example/v1"),
    Form(name="mysql", make=run(ALNUM, 14), phrase="mysql -u root -p{} shop"),
    Form(name="flag", make=run(ALNUM, 24), phrase="tool --api-key {} --verbose"),
    Form(name="signed address", make=run(ALNUM, 43), phrase="https://acct.host.example/c?sv=2024&sig={}&se=1"),
    Form(
        name="webhook",
        make=parts("T", run(UPPER + DIGITS, 9), "/B", run(UPPER + DIGITS, 9), "/", run(ALNUM, 24)),
        phrase="https://hooks.slack.com/services/{}",
    ),
    Form(name="chinese", make=_password, phrase="数据库的密码是{}，请保存好"),
)
"""Secrets that only their name or their place gives away."""

FORMS: tuple[Form, ...] = (*(Form(name=name, make=make) for name, make in SHAPES.items()), *NAMED)


def _called(number: int, name: str, arguments: dict[str, object], output: str) -> list[Message]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call_id = f"call_{number}"
    return [
        {"role": "user", "content": f"Please go on with step {number}."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": output},
        {"role": "assistant", "content": f"Step {number} is done."},
    ]


def _printed(number: int, output: str) -> list[Message]:
    return _called(number, "terminal", {"command": f"make step-{number}"}, output)


def _said(number: int, text: str) -> list[Message]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": f"Step {number}: noted, I use it."}]


def _long_output(number: int, phrase: str) -> str:
    """Return an output that is cut, at a place that differs from one to the next and may lie inside the phrase."""
    line = "the yard was read again and nothing new was found in it"
    before = "\n".join(f"{line} ({count})" for count in range(22)) + "\n" + "x" * (number * 37 % 61)
    return f"{before}\n{phrase}\n" + "\n".join(f"{line}, row {count}" for count in range(120))


CONTEXTS: dict[str, Callable[[int, str], list[Message]]] = {
    "said": lambda number, phrase: _said(number, f"Here it is:\n{phrase}\nPlease go on with step {number}."),
    "in parts": lambda number, phrase: [
        {"role": "user", "content": [{"type": "text", "text": f"Use this\n{phrase}"}, {"type": "text", "text": "now"}]},
        {"role": "assistant", "content": f"Step {number} is done."},
    ],
    "fenced": lambda number, phrase: [
        {"role": "user", "content": f"What is in the file of step {number}?"},
        {"role": "assistant", "content": f"It says:\n```\n{phrase}\n```\nI decided to use it instead of the old one."},
    ],
    "printed": lambda number, phrase: _printed(number, f"$ cat settings\n{phrase}\nexit code 0"),
    "numbered": lambda number, phrase: _printed(number, f"     1→# settings\n     2→{phrase}\n     3→# end"),
    "diff": lambda number, phrase: _printed(number, f"--- a/settings\n+++ b/settings\n@@ -1 +1 @@\n+{phrase}\n"),
    "error": lambda number, phrase: _printed(number, f"Error: step {number} failed\n{phrase}\nexit code 1"),
    "json": lambda number, phrase: _printed(
        number, json.dumps({"output": f"settings\n{phrase}\nend", "exit_code": 0}, ensure_ascii=False)
    ),
    "json in json": lambda number, phrase: _printed(
        number, json.dumps({"result": json.dumps({"stdout": f"settings\n{phrase}\nend"})})
    ),
    "written": lambda number, phrase: _called(
        number, "write_file", {"path": f"conf/step_{number}.env", "content": f"# settings\n{phrase}\n"}, "written"
    ),
    "command": lambda number, phrase: _called(
        number, "terminal", {"command": f"cat > .env <<'EOF'\n{phrase}\nEOF\nmake step-{number}"}, "ok"
    ),
    "long output": lambda number, phrase: _printed(number, _long_output(number, phrase)),
}
"""The ways a secret stands in a conversation: by name, a function of a number and the phrase that holds it."""


def planted(form: Form, context: str, number: int, rng: Random) -> Planted:
    """Return messages that hold a new secret of a form, in a context."""
    secret = form.make(rng)
    return Planted(secret=secret, messages=CONTEXTS[context](number, form.phrase.format(secret)))


def pieces(secrets: Iterable[str]) -> dict[str, str]:
    """Return every piece of the secrets that must not be seen, with the secret it is of; what is published is none."""
    found = {secret[at : at + PIECE]: secret for secret in secrets for at in range(max(1, len(secret) - PIECE + 1))}
    return {piece: secret for piece, secret in found.items() if not _PUBLIC.fullmatch(piece)}


def leaks(known: dict[str, str], text: str) -> Iterator[str]:
    """Yield the pieces that stand in a text; the marks that name a kind of secret are no part of it."""
    text = _MARK.sub("[]", text)
    return (piece for at in range(len(text)) if (piece := text[at : at + PIECE]) in known)
