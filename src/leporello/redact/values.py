"""Judge whether what stands after a secret's name is a value, or a reference, a placeholder or a piece of code."""

from __future__ import annotations

import re

_REFERENCE_STARTS = (*"$<{[(%*#@&", "...", "…", "env:", "vault:", "arn:", "op://", "file:", "ssm:", "sm://")
_PLACEHOLDER_WORDS = """
    none null nil undefined true false yes no on off nan str string strings text bytes int integer number float bool
    boolean any object array list dict optional required secret secrets password passwords passwd pass pwd passphrase
    token tokens key keys apikey credential credentials value values example sample test testing tests dummy fake mock
    placeholder changeme change replace replaceme redacted masked hidden removed omitted withheld unset empty default
    foo bar baz qux foobar todo tbd here input field basic bearer digest oauth oauth2 jwt saml ldap local auto manual
    disabled enabled invalid missing unknown unauthorized forbidden expired valid incorrect wrong encrypted hashed
    user username admin root guest login email name self this args kwargs request response config settings options
    params props state data context session env environ environment prompt plain plaintext literal public private hash
    salt base64 utf8 utf-8 ascii sha1 sha256 sha512 md5 bcrypt argon2 argon2id scrypt pbkdf2 hs256 rs256 es256 oauth1
"""
_PLACEHOLDERS = frozenset(_PLACEHOLDER_WORDS.split())
_PLACEHOLDER_PART = re.compile(
    r"(?:^|[^a-z0-9])(?:your|my|the|example|sample|placeholder|changeme|replace|redacted|dummy|fake|mock|insert|todo|"
    r"secret|password|passwd|token|api[-_]?key|key|credential|goes|here|test)(?:$|[^a-z0-9])",
    re.IGNORECASE,
)
_FILLER = re.compile(r"(.)\1{2,}|[x*.•#?_-]{3,}|.{0,64}(?:\.{3}|…|x{5,}|\*{3,}).{0,64}", re.IGNORECASE | re.DOTALL)
_CODE = re.compile(
    r"[A-Za-z_]\w{0,64}(?:(?:\.|->|::|\?\.)[A-Za-z_]\w{0,64}){1,8};?"
    r"|[\w.]{1,100}[(\[].{0,400}|.{0,100}(?:=>|\$\{|\{\{|\(\)).{0,100}",
    re.ASCII | re.DOTALL,
)
_WORDS = re.compile(r"(?:[-_.:/ ]?(?:[A-Z]{2,}+[a-z]*+|[A-Z]?[a-z]{2,}+))++", re.ASCII)
_PATH = re.compile(r"(?:[.~]{0,2}/|[a-z]{2,10}://|[A-Za-z]:\\)?[\w.@-]{1,64}(?:/[\w.@-]{1,64}){1,16}/?", re.ASCII)
_CAMEL = re.compile(r"[a-z]+(?:[A-Z][a-z]++)++\d?|(?:[A-Z][a-z]++){2,}+\d?", re.ASCII)
_SNAKE = re.compile(r"_?[a-z]++(?:_[a-z0-9]++)++", re.ASCII)

_SHORTEST_PASSWORD = 4
_SHORTEST_TOKEN = 8
_SHORTEST_BARE_TOKEN = 12
_LONG_TOKEN = 20
_LONGEST_CODE = 200
_LONGEST_PLACEHOLDER = 200
_MOST_PLACEHOLDER_DIGITS = 4


def is_placeholder(value: str) -> bool:
    """Tell whether a value stands for a secret without being one."""
    if not value or value.startswith(_REFERENCE_STARTS):
        return True
    return len(value) <= _LONGEST_PLACEHOLDER and (
        value.lower() in _PLACEHOLDERS
        or _FILLER.fullmatch(value) is not None
        or (_reads_as_words(value) and _PLACEHOLDER_PART.search(value) is not None)
    )


def is_password(value: str, *, quoted: bool, alone: bool) -> bool:
    """Tell whether a password's name is followed by a password.

    `alone` says that nothing else stands on the line, as in a file of settings: there, and inside quotes, a plain word
    counts; elsewhere it is more likely a variable.
    """
    if len(value) < _SHORTEST_PASSWORD or is_placeholder(value) or any(map(str.isspace, value)):
        return False
    if _PATH.fullmatch(value) is not None:
        return False
    if quoted:
        return True
    if len(value) == _SHORTEST_PASSWORD or _is_code(value):
        return False
    return alone or not (value.isidentifier() or value.isdigit()) or _has_digit_inside(value)


def _has_digit_inside(value: str) -> bool:
    return not value.isdigit() and any(map(str.isdigit, value))


def is_token(value: str, *, quoted: bool) -> bool:
    """Tell whether the name of a token, a key or another made-up secret is followed by one."""
    shortest = _SHORTEST_TOKEN if quoted else _SHORTEST_BARE_TOKEN
    if len(value) < shortest or is_placeholder(value) or any(map(str.isspace, value)):
        return False
    if not quoted and _is_code(value):
        return False
    if _PATH.fullmatch(value) is not None and not _is_dense(value):
        return False
    digits, letters = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    return (digits and letters) or (len(value) >= _LONG_TOKEN and letters and _is_dense(value))


def is_random(value: str) -> bool:
    """Tell whether a value reads like generated characters: long, with digits among the letters."""
    return len(value) >= _LONG_TOKEN and any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _is_code(value: str) -> bool:
    if len(value) > _LONGEST_CODE:
        return False
    return (_CODE.fullmatch(value) is not None and not _has_random_part(value)) or (
        _CAMEL.fullmatch(value) is not None or _SNAKE.fullmatch(value) is not None
    )


def _has_random_part(value: str) -> bool:
    return "(" not in value and any(is_random(part) for part in re.split(r"\W", value))


def _is_dense(value: str) -> bool:
    """Tell mixed characters from words that a separator or a hump keeps apart."""
    return _WORDS.fullmatch(value) is None


def _reads_as_words(value: str) -> bool:
    """Tell a phrase such as `your-api-key-1` from random characters that happen to hold a word."""
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", value) if part]
    return all(part.isdigit() or part.islower() or part.isupper() or part.istitle() for part in parts) and (
        sum(map(str.isdigit, value)) <= _MOST_PLACEHOLDER_DIGITS
    )
