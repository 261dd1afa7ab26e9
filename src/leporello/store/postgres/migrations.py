"""The schema, as numbered files: each is run once, in order; of several processes that start at once one does it."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

from psycopg import sql

from leporello.errors import StoreError
from leporello.store.search.prepare import PREPARE_VERSION

if TYPE_CHECKING:
    import psycopg

_LOCK = 0x4C65706F  # "Lepo": the first half of the advisory lock


def versions() -> dict[int, str]:
    """Return the migrations by number."""
    folder = resources.files("leporello.store.postgres") / "schema"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return {int(file.name.removesuffix(".sql")): file.read_text(encoding="utf-8") for file in files}


def is_current(raw: psycopg.Connection[Any], schema: str, place: str) -> bool:
    """Tell whether a database has the newest schema; one that is not ours, or newer than we know, is refused."""
    version, newest = _version(raw, schema, place), max(versions())
    if version > newest:
        raise StoreError(
            f"the database has schema {version}; this version of Leporello knows {newest}.",
            place=place,
            hint="Upgrade Leporello, or name another database.",
        )
    return version == newest


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
        before = _version(raw, schema, place)
        for number, script in versions().items():
            if number > before:
                raw.execute(script.encode())
        raw.execute(
            "INSERT INTO settings (key, value) VALUES ('schema', %s), ('prepare_version', %s), ('index_todo', '0')"
            " ON CONFLICT (key) DO UPDATE SET value = CASE WHEN settings.key = 'schema' THEN excluded.value"
            " ELSE settings.value END",
            (str(max(versions())), str(PREPARE_VERSION)),
        )


def _version(raw: psycopg.Connection[Any], schema: str, place: str) -> int:
    """Return the number of the schema; 0 when there is none yet."""
    tables = raw.execute(
        "SELECT count(*), count(*) FILTER (WHERE tablename = 'settings') FROM pg_tables WHERE schemaname = %s",
        (schema,),
    ).fetchone()
    count, ours = tables or (0, 0)
    if not count:
        return 0
    if ours:
        row = raw.execute(
            sql.SQL("SELECT value FROM {} WHERE key = 'schema'").format(sql.Identifier(schema, "settings"))
        ).fetchone()
        if row is not None:
            return int(row[0])
    raise StoreError(
        f"the schema {schema!r} holds tables of another program.",
        place=place,
        hint="It was left as it is; name another one with ?schema=NAME.",
    )
