"""The address of a database: what goes to libpq, and what may be shown."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from leporello.errors import StoreError

SCHEMA: Final = "leporello"
"""The schema that holds the tables, unless the address names another with `?schema=`."""
_LONGEST_NAME: Final = 63
_SECRETS: Final = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})


class DatabaseAddress(NamedTuple):
    """Where a database is."""

    conninfo: str
    """What libpq is given, with everything that is secret."""
    schema: str
    place: str
    """What may be shown."""
    secrets: tuple[str, ...]

    def shown(self, text: str) -> str:
        """Return a text without the secrets of this address."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def names(self, option: str) -> bool:
        """Tell whether the address sets an option of the connection."""
        return any(key == option for key, _ in parse_qsl(urlsplit(self.conninfo).query))


def parse(url: str) -> DatabaseAddress:
    """Read `postgresql://user:password@host:port/database?option=value`."""
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise StoreError("the address cannot be read.", place="postgresql://…", hint=_EXAMPLE) from None
    schema = dict(options).get("schema", SCHEMA)
    place = place_of(url)
    if not schema or len(schema.encode()) > _LONGEST_NAME or "\0" in schema or schema.startswith("pg_"):
        raise StoreError(f"{schema!r} cannot be the name of a schema.", place=place)
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    secrets = {password, unquote(password), *(value for key, value in options if key in _SECRETS)}
    query = urlencode([(key, value) for key, value in options if key != "schema"], quote_via=quote)
    conninfo = f"postgresql://{parts.netloc}{parts.path}" + (f"?{query}" if query else "")
    return DatabaseAddress(conninfo, schema, place, tuple(sorted(filter(None, secrets), key=len, reverse=True)))


def place_of(url: str) -> str:
    """Return an address without its secrets."""
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return "postgresql://…"
    user, at, host = parts.netloc.rpartition("@")
    shown = urlencode([(key, value) for key, value in options if key not in _SECRETS], quote_via=quote)
    return f"postgresql://{user.partition(':')[0]}{at}{host}{parts.path}" + (f"?{shown}" if shown else "")


_EXAMPLE: Final = "Write postgresql://user@host/database."
