"""Secrets that only their name or their place gives away are replaced; what merely looks like one is kept."""

from __future__ import annotations

import base64
import random
import string

import pytest

from leporello.redact import redact, redact_value
from leporello.redact.redactor import FINDERS, _redact

MARKED = "«»"
CREDENTIALS = base64.b64encode(b"bob:s3cretWord9").decode()

SECRETS = [
    "PASSWORD=«hunter2»",
    "DB_PASSWORD=«sunshine»",
    "export PGPASSWORD=«pa55-word!»",
    "PGPASSWORD=«sunshine» psql -h db",
    "docker run -e POSTGRES_PASSWORD=«correcthorse» postgres",
    'password = "«sunshine»"',
    "password='«p@ss,word;1»'",
    '{"password": "«hunter2»", "user": "bob"}',
    r"{\"password\": \"«hunter2»\"}",
    r"{\\\"password\\\": \\\"«hunter2»\\\"}",
    "db:\n  password: «hunter2»\n  user: bob",
    "db:\n  password: «sunshine»\n  user: bob",
    "password: «p,a;s$s1»\n",
    '"dbPassword" : "«Tr0ub4dor&3»"',
    "config['password'] = '«hunter2»'",
    ":password => '«hunter2»',",
    "<password>«hunter2»</password>",
    "<Password>«sunshine»</Password>",
    'const apiKey = "«f3a9c1d2e8b74655»";',
    "api_key: «f3a9c1d2e8b74655»",
    "X-Api-Key: «f3a9c1d2e8b74655»",
    "aws_secret_access_key = «wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEzAmPlEkY»",
    'SecretAccessKey": "«wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEzAmPlEkY»"',
    "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=«" + "Ab1/" * 21 + "Zz==»;EndpointSuffix=core",
    "Server=db;Database=x;User Id=sa;Password=«sunshine»;Encrypt=yes",
    "host=db user=bob password=«hunter2» dbname=x",
    "https://acct.blob.example/c?sv=2024&sig=«aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW%2Bx%3D»&se=1",
    "See https://acct.blob.example/c?sv=2024&sig=«aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW%2BxYz0123456%3D»!",
    "See https://acct.blob.example/c?sv=2024&sig=«aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW%2BxYz0123456%3D». It works.",
    "https://api.example/v1?token=«f3a9c1d2e8b74655»&page=2",
    "https://api.example/v1?api_key=«f3a9c1d2e8b74655»",
    "redirect=https%3A%2F%2Fapi.example%3Ftoken%3D«f3a9c1d2e8b74655»%26page%3D2",
    "postgres://bob:«hunter2»@db.example/x",
    "https://bob:«p@ss:word»@host.example/x",
    "redis://:«sunshine»@cache:6379/0",
    "u=postgres%3A%2F%2Fbob%3A«hunter2»%40db",
    "https://«f3a9c1d2e8b74655f3a9c1d2e8b74655»@git.example/x.git",
    "Authorization: Bearer «abcdef1234567890»",
    "-H 'Authorization: token «abcdef1234567890»'",
    f"Authorization: Basic «{CREDENTIALS}»",
    '"Authorization": "Bearer «abcdef1234567890»"',
    "sent Bearer «abcdef1234567890abcdef» to it",
    "Cookie: theme=dark; session=«9f8e7d6c5b4a3210»; lang=en",
    "Set-Cookie: sid=«9f8e7d6c5b4a3210»; Path=/; HttpOnly",
    f'{{"auths": {{"registry": {{"auth": "«{CREDENTIALS}»"}}}}}}',
    "curl -u bob:«hunter2» https://host.example",
    "mysql -u root -p«hunter2» shop",
    "sshpass -p «hunter2» ssh host",
    "sshpass -p '«hunter2»' ssh host",
    "redis-cli -a «hunter2» ping",
    "docker login -u bob -p «hunter2» registry",
    "tool --password «hunter2» --verbose",
    "--password «hunter22x»",
    "--token «abcd1234efgh5678»",
    "--password '«hunter22x»' --verbose",
    "tool --api-key «f3a9c1d2e8b74655»",
    "tool --token=«f3a9c1d2e8b74655» run",
    "machine host.example login bob password «hunter2»",
    "machine host.example\n  login bob\n  password «hunter2»\n",
    "https://hooks.slack.com/services/«T01ABCDEF/B01ABCDEF/a1b2c3d4e5f6a1b2c3d4e5f6»",
    "https://discord.com/api/webhooks/«123456789012345678/" + "aB1-" * 17 + "»",
    "TWILIO_AUTH_TOKEN=«0123456789abcdef0123456789abcdef»",
    "CLOUDFLARE_API_TOKEN=«aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789_-ab»",
    "//npm.example.com/:_authToken=«0f8fad5b-d9cb-469f-a165-70867728950e»",
    '"private_key_id": "«0123456789abcdef0123456789abcdef01234567»"',
    'mnemonic = "«abandon ability able about above absent absorb abstract absurd abuse access account»"',
    "数据库的密码是«hunter2»，不要告诉别人",
    "密码：«hunter2»",
    r'{"p":"\u5bc6\u7801\uff1a«a1b2c3d4e5f6»"}',
    r'{"p":"\u5BC6\u94A5 is x, \u5BC6\u94A5\u662F\u201c«a1b2c3d4e5f6»\u201d\uff0c"}',
    r"{\"p\":\"\\u53e3\\u4ee4\\u4e3a: «hunter2»\"}",
    r'{"p":"\u4ee4\u724c=\"«a1b2c3d4e5f6»\""}',
    "password=«hunter2»，然后重启",
]

KEPT = [
    "password = get_password()",
    "password = os.environ['DB_PASSWORD']",
    'password = os.environ["DB_PASSWORD"]',
    "password=os.getenv('PW1')",
    "password: str",
    "password: Optional[str] = None",
    "password: string;",
    "def login(user: str, password: str) -> Token:",
    "self.password = password",
    "token = response.json()['token']",
    "token = auth.login(user, password)",
    "api_key=self.api_key,",
    "apiKey: process.env.OPENAI_API_KEY,",
    "PASSWORD=$DB_PASSWORD",
    "PASSWORD=${DB_PASSWORD:-x}",
    "password: {{ vault_password }}",
    "password: ${{ secrets.DB_PASSWORD }}",
    "PASSWORD=",
    'password=""',
    "api_key: <your key>",
    'api_key = "YOUR_API_KEY"',
    'api_key = "your-api-key-here"',
    "api_key: xxxxxxxxxxxx",
    "password: ********",
    "password=changeme",
    "token: null",
    "tokens: 512",
    "max_tokens: 4096",
    "prompt_tokens=1234 completion_tokens=567",
    '"next_page_token": "CAUQAA1234567890"',
    '"pad_token": "<|endoftext|>"',
    "password reset for bob",
    "The password: it must be long",
    "Your password is required.",
    "Please reset your password: click here",
    "forgot_password: /account/forgot",
    '"password": "Password must be at least 8 characters"',
    "primary_key=True",
    'key: "value1234567"',
    "foreign_key: user_id_1234",
    "Authorization: Bearer <token>",
    'headers = {"Authorization": f"Bearer {token}"}',
    "Authorization: Bearer $TOKEN",
    "bearer of bad news",
    "https://user:password@host.example",
    "https://${USER}:${PASS}@host.example",
    "https://host.example:8080/path@v1",
    "mail bob@example.com: hello",
    "pip install git+https://git.example/x.git@v1.2.3",
    "ssh -p 2222 bob@host",
    "docker run -p 8080:80 web",
    "mysql -u root -p shop",
    "mkdir -p src/module1/part2",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "id 0f8fad5b-d9cb-469f-a165-70867728950e",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "/usr/lib/python3.11/site-packages/some_package/very_long_module_name_1234.py",
    "toolu_01MGqJNAucDoKPyZKrzvWLmx",
    "msg_01EEiRWuVvwAmenNJXZcerPY",
    "call_abc123DEF456ghi789JKL012",
    "task-management-and-risk-assessment-for-disk-usage-2024",
    "sk-learn and scikit-learn",
    "test_password_is_required_when_token_is_missing",
    "git-hash-object-01234567890123456789",
    "skip-existing-and-sk-",
    "token: Token",
    "secret: SecretStr",
    "passes: 12, pass: 345678 tests",
    "--password $PASSWORD",
    "--max-tokens 4096",
    "--token <token>",
    r'{"p":"\u5bc6\u7801\uff1a8\u4f4d\u4ee5\u4e0a"}',
    r'{"p":"\u5bc6\u7801\uff1a"}',
    r'{"p":"\u5bc6\u7801\uff1a<your-password-1>"}',
    r'{"p":"\u5bc6\u5c01\uff1aa1b2c3d4e5f6"}',
    "https://host.example/c?page=2&sig=short!",
    "pwd: /home/user1/project",
    "cookie: true",
    "x = {'token': token, 'password': password}",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
    'signature: "abc"',
]


def split(example: str) -> tuple[str, str, str]:
    before, rest = example.split(MARKED[0])
    secret, after = rest.split(MARKED[1])
    return before, secret, after


def is_replaced(example: str, output: str) -> bool:
    """Tell whether exactly the marked part was replaced."""
    before, secret, after = split(example)
    return (
        output.startswith(before + "[REDACTED:")
        and output.endswith("]" + after)
        and secret not in output
        and len(output) < len(before) + len(after) + 40
    )


@pytest.mark.parametrize("example", SECRETS)
def test_exactly_the_secret_is_replaced(example: str) -> None:
    before, secret, after = split(example)
    output = redact(before + secret + after)
    assert is_replaced(example, output), output


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_secret_is_kept(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("finder", ["find_places", "find_assignments"])
def test_a_redactor_without_a_finder_is_noticed(finder: str) -> None:
    broken = tuple(find for find in FINDERS if find.__name__ != finder)
    missed = [example for example in SECRETS if not is_replaced(example, _redact("".join(split(example)), broken))]
    assert missed


def test_an_over_eager_redactor_is_noticed() -> None:
    assert not is_replaced("PASSWORD=«hunter2» and more", "PASSWORD=[REDACTED:password]")


@pytest.mark.parametrize("name", ["PASSWORD", "API_TOKEN", "CLIENT_SECRET", "STRIPE_API_KEY"])
def test_random_values_of_secret_names_are_replaced(name: str) -> None:
    rng = random.Random(name)
    alphabet = string.ascii_letters + string.digits
    for length in range(16, 64):
        value = "".join(rng.choice(alphabet) for _ in range(length - 2)) + "a7"
        assert value not in redact(f"{name}={value}\n")
        assert value not in redact(f'{{"{name.lower()}": "{value}"}}')
        assert value not in redact(f"  {name.lower()}: {value}\n")


def test_a_very_long_value_is_replaced_to_its_end() -> None:
    value = "aB3" * 3000
    assert redact(f"SERVICE_SECRET={value} next") == "SERVICE_SECRET=[REDACTED:secret] next"
    assert redact(f'"client_secret": "{value}" next') == '"client_secret": "[REDACTED:secret]" next'


def test_values_in_structures_are_replaced_by_their_key_and_by_their_shape() -> None:
    token = "ghp_" + "a1B2" * 9
    value = {"password": "sunshine", "n": [1, None, True, {"note": f"use {token}", "api_key": "f3a9c1d2e8b74655"}]}
    assert redact_value(value) == {
        "password": "[REDACTED:password]",
        "n": [1, None, True, {"note": "use [REDACTED:github-token]", "api_key": "[REDACTED:secret]"}],
    }
    assert value["password"] == "sunshine"


def test_harmless_structures_stay_equal() -> None:
    value = {"max_tokens": 512, "token": "", "password": None, "text": ["a", {"key": "value"}], "tokens": "512"}
    assert redact_value(value) == value
