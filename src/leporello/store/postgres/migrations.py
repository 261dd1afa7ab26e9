"""The schema, as numbered files: each is run once, in order; of several processes that start at once one does it.

A file whose first line is `-- serves N` changes nothing that a process with schema N or a newer one relies on: it only
adds, and what it makes needless is removed a release later. So processes of the previous and of this release use a
database at once. A file without such a line serves no older process.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import sql

from leporello.errors import StoreError
from leporello.store.postgres.index import INDEX_VERSION
from leporello.store.records import SchemaPlan

if TYPE_CHECKING:
    import psycopg

_SERVES = re.compile(r"-- serves (\d+)\n")
_COMMENT = re.compile(r"--.*")
_LOCK = 0x4C65706F  # "Lepo": the first half of the advisory lock


def versions() -> dict[int, str]:
    """Return the migrations by number."""
    folder = resources.files("leporello.store.postgres") / "schema"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return {int(file.name.removesuffix(".sql")): file.read_text(encoding="utf-8") for file in files}


def serves(number: int, script: str) -> int:
    """Return the oldest schema whose processes may go on with a database after this migration."""
    found = _SERVES.match(script)
    return int(found[1]) if found else number


def plan(raw: psycopg.Connection[Any], schema: str, place: str) -> SchemaPlan:
    """Say what it takes to bring a database to the newest schema."""
    found, scripts = _settings(raw, schema, place), versions()
    steps = [(number, script) for number, script in scripts.items() if number > found.schema]
    statements = [part.strip() for _, script in steps for part in _COMMENT.sub("", script).split(";")]
    return SchemaPlan(
        version=found.schema,
        newest=max(scripts),
        serves=max((serves(*step) for step in steps), default=found.serves),
        statements=tuple(filter(None, statements)),
    )


def is_current(raw: psycopg.Connection[Any], schema: str, place: str) -> bool:
    """Tell whether nothing is to be done; what is not ours, or too new for this version, is refused."""
    found, newest = _settings(raw, schema, place), max(versions())
    if found.serves > newest:
        raise StoreError(
            f"the database has schema {found.schema}; this version of Leporello knows {newest}.",
            place=place,
            hint="Upgrade Leporello, or name another database.",
        )
    return found.schema >= newest


def migrate(raw: psycopg.Connection[Any], schema: str, place: str, *, busy_seconds: float) -> None:
    """Bring a database to the newest schema; of several processes that try, one does it and the others find it done."""
    with raw.transaction():
        raw.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(int(busy_seconds * 1000)))
        raw.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK, schema))
        if is_current(raw, schema, place):
            return
        there = raw.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
        if there is None:
            raw.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        raw.execute(sql.SQL("SET LOCAL search_path = {}").format(sql.Identifier(schema)))
        upgrade = plan(raw, schema, place)
        for number, script in versions().items():
            if number > upgrade.version:
                raw.execute(script.encode())
        raw.execute(
            "INSERT INTO settings (key, value) VALUES ('schema', %s), ('serves', %s), ('prepare_version', %s),"
            " ('index_todo', '0') ON CONFLICT (key) DO UPDATE SET value = CASE WHEN settings.key IN"
            " ('schema', 'serves') THEN excluded.value ELSE settings.value END",
            (str(upgrade.newest), str(upgrade.serves), str(INDEX_VERSION)),
        )


class _Settings(NamedTuple):
    """What a database says of its schema; 0 when it has none."""

    schema: int
    serves: int


def _settings(raw: psycopg.Connection[Any], schema: str, place: str) -> _Settings:
    tables = raw.execute(
        "SELECT count(*), count(*) FILTER (WHERE tablename = 'settings') FROM pg_tables WHERE schemaname = %s",
        (schema,),
    ).fetchone()
    count, ours = tables or (0, 0)
    if not count:
        return _Settings(0, 0)
    if ours:
        query = sql.SQL("SELECT key, value FROM {} WHERE key IN ('schema', 'serves')")
        found: dict[str, str] = dict(raw.execute(query.format(sql.Identifier(schema, "settings"))).fetchall())
        if "schema" in found:
            return _Settings(int(found["schema"]), int(found.get("serves", found["schema"])))
    raise StoreError(
        f"the schema {schema!r} holds tables of another program.",
        place=place,
        hint="It was left as it is; name another one with ?schema=NAME.",
    )
