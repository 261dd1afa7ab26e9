"""Judge whether a name announces a secret: `DB_PASSWORD` does, `max_tokens` and `primary_key` do not."""

from __future__ import annotations

import re
from functools import lru_cache

_SUFFIX_WORDS = """
    base value plain raw string str text prod production dev development staging live old new current primary secondary
    b64 base64 encoded
"""
_KEY_QUALIFIER_WORDS = """
    api app access secret private account encryption encrypt decryption signing sign auth master service shared client
    storage license admin deploy hmac aes jwt session webhook subscription anon role ssh rsa cipher wallet function
    functions write ingest ingestion project bot server
"""
_GRAMMAR_WORDS = """
    page next prev previous continuation pad eos bos sep cls mask unk special start end stop first last max min per sub
    image current unknown cancellation cancel abort sync syntax lexer lookahead parse delimiter separator word subword
    logit prompt completion input output each every one
"""
_ENDING_WORDS = """
    password passwd passphrase passcode pass pwd pw psw pswd secret token key keyid key_id key-id credential credentials
    creds authorization cookie auth mnemonic phrase words sig signature
"""
# What may follow the telling word of a name, and the last letters of every name that `kind_of_name` can accept.
SUFFIXES = frozenset(_SUFFIX_WORDS.split())
ENDINGS = frozenset(_ENDING_WORDS.split())

_KEY_QUALIFIERS = frozenset(_KEY_QUALIFIER_WORDS.split())
_PLAIN_TOKENS = frozenset(_GRAMMAR_WORDS.split())
_PASSWORDS = ("password", "passwd", "passphrase", "passcode")
_PASSWORD_WORDS = frozenset({"pass", "pwd", "pw", "psw", "pswd"})
_COMPOUNDS = ("secret", "apikey", "secretkey", "accesskey", "privatekey", "accountkey")
_CREDENTIALS = ("credential", "credentials", "creds")
_PHRASES = ("seedphrase", "recoveryphrase", "mnemonicphrase", "seedwords", "mnemonic")
_OTHERS = {"authorization": "authorization", "cookie": "cookie", "auth": "auth", "sig": "signature"}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[-_.\s]+")


@lru_cache(maxsize=4096)
def kind_of_name(name: str) -> str | None:
    """Return what a name announces, or None.

    It is one of: password, token, key, secret, authorization, cookie, auth, phrase, signature.
    """
    words = [word.lower() for word in _HUMP.split(name) if word]
    while len(words) > 1 and (words[-1] in SUFFIXES or words[-1].lstrip("v").isdigit()):
        words.pop()
    if not words:
        return None
    last = words[-1].rstrip("0123456789") or words[-1]
    return _kind(last, before=words[-2] if len(words) > 1 else "", whole="".join(words))


def _kind(last: str, *, before: str, whole: str) -> str | None:
    kind = _OTHERS.get(last)
    if last.endswith(_PASSWORDS) or last in _PASSWORD_WORDS:
        kind = "password"
    elif last.endswith("token"):
        kind = None if before in _PLAIN_TOKENS else "token"
    elif last.endswith((*_COMPOUNDS, *_CREDENTIALS)):
        kind = "secret"
    elif (last == "key" and before in _KEY_QUALIFIERS) or whole.endswith("privatekeyid"):
        kind = "key"
    elif whole.endswith(_PHRASES):
        kind = "phrase"
    elif last == "signature":
        kind = "signature"
    return kind
