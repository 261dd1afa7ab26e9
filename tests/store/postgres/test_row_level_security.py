"""Two keys on one database, at the level of SQL: with the policies in deploy/postgresql a user sees its own only."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from tests.fixtures.databases import server

from leporello.errors import StoreError
from leporello.store.postgres import PostgresStore
from leporello.store.postgres.index import is_parted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.databases import Schemas

POLICIES = Path(__file__).parents[3] / "deploy" / "postgresql" / "row-level-security.sql"


class Shared:
    """A schema with the conversations of two owners, each of whom is a user of the database too."""

    def __init__(self, schemas: Schemas, stack: ExitStack) -> None:
        self.owners = [f"{name}_{uuid4().hex[:8]}" for name in ("ann", "bob")]
        self.store = schemas.open("shared")
        self._stack = stack
        for owner in self.owners:
            self.store.append(
                "c", [{"role": "user", "content": f"secret of {owner} " * 300}], owner=owner, known={0: [b"h" * 16]}
            )
        self.schema = self.store._db.address.schema
        self._url = schemas.url("shared")
        with self._as_owner_of_the_tables() as connection:
            for owner in self.owners:
                connection.execute(
                    sql.SQL(
                        "CREATE ROLE {0} LOGIN; GRANT USAGE ON SCHEMA {1} TO {0};"
                        " GRANT ALL ON ALL TABLES IN SCHEMA {1} TO {0}; GRANT ALL ON ALL SEQUENCES IN SCHEMA {1} TO {0}"
                    ).format(sql.Identifier(owner), sql.Identifier(self.schema))
                )

    def _as_owner_of_the_tables(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(server(), autocommit=True)
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(self.schema)))
        return connection

    def restrict(self) -> None:
        """Run what is in deploy/, twice."""
        with self._as_owner_of_the_tables() as connection:
            for _ in range(2):
                connection.execute(POLICIES.read_bytes())

    def rows(self, owner: str) -> dict[str, int]:
        """Count the rows of each table that a user sees of conversations, asking as bare SQL does."""
        found: dict[str, int] = {}
        with self._as_owner_of_the_tables() as connection:
            tables = connection.execute(
                "SELECT table_name FROM information_schema.columns WHERE table_schema = %s"
                " AND column_name = 'conversation' UNION SELECT 'conversations'",
                (self.schema,),
            ).fetchall()
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(owner)))
            for (table,) in tables:
                row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))).fetchone()
                found[table] = row[0] if row else 0
        return {table: count for table, count in found.items() if count}

    def opened_by(self, owner: str) -> PostgresStore:
        """Open the store as the user of an owner."""
        user = f"//{owner}:any@" if "//postgres:" in self._url else f"//{owner}@"
        store = PostgresStore(self._url.replace("//postgres:@", user).replace("//postgres@", user))
        self._stack.callback(store.close)
        return store

    def remove(self) -> None:
        self.store.close()
        with self._as_owner_of_the_tables() as connection:
            for owner in self.owners:
                connection.execute(sql.SQL("DROP OWNED BY {0} CASCADE; DROP ROLE {0}").format(sql.Identifier(owner)))


@pytest.fixture
def shared(schemas: Schemas) -> Iterator[Shared]:
    with ExitStack() as stack:
        found = Shared(schemas, stack)
        stack.callback(found.remove)
        yield found


def test_a_user_sees_the_rows_of_its_own_conversations_only(shared: Shared) -> None:
    """Before the policies, the planted defect, each sees those of both."""
    both = shared.rows(shared.owners[0])
    assert both["conversations"] == both["messages"] == 2
    shared.restrict()
    for owner in shared.owners:
        assert shared.rows(owner) == {table: count // 2 for table, count in both.items()}


def test_beneath_policies_the_index_is_asked_at_once(shared: Shared) -> None:
    """PostgreSQL then reads row after row, and would do so for each part."""
    with shared.store._db.read() as connection:
        assert is_parted(connection)
    shared.restrict()
    for store, parted in ((shared.opened_by(shared.owners[0]), False), (shared.store, True)):
        with store._db.read() as connection:
            assert is_parted(connection) is parted


def test_a_store_of_one_user_works_and_never_sees_the_other_s(shared: Shared) -> None:
    shared.restrict()
    ann, bob = shared.owners
    store = shared.opened_by(ann)
    store.append("c", [{"role": "assistant", "content": "an answer"}], owner=ann)
    store.append("new", [{"role": "user", "content": "another"}], owner=ann)
    store.fork("c", owner=ann)
    assert len(list(store.messages("c", owner=ann))) == 2
    assert store.search("secret", owner=ann).hits
    # what a gateway that mixed up its owners would ask
    assert list(store.messages("c", owner=bob)) == []
    assert not store.search("secret", owner=bob).hits
    assert {info.owner for info in store.conversations()} == {ann}
    assert store.get(["m1", "m2"], owner=bob) == {}
    with pytest.raises(StoreError, match="may not do that"):
        store.append("c", [{"role": "user", "content": "written by ann"}], owner=bob)
    assert len(list(shared.store.messages("c", owner=bob))) == 1
