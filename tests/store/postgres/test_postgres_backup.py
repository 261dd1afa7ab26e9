"""A backup as docs/how-to/deploy.md makes it, and back again."""

from __future__ import annotations

import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.fixtures.cluster import programs

from leporello.store.postgres import PostgresStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cluster import Cluster

pytestmark = pytest.mark.slow


def problems(store: PostgresStore) -> list[str]:
    return [*map(str, store.check_chain("c")), *map(str, store.check_index()), *map(str, store.check_file())]


def test_a_dump_holds_everything_and_is_proven_where_it_is_restored(clusters: type[Cluster], tmp_path: Path) -> None:
    here, dump = clusters().start(), str(tmp_path / "leporello.dump")
    with closing(PostgresStore(here.url)) as store:
        store.append("c", [{"role": "user", "content": f"word{n} " * 900} for n in range(20)])
        subprocess.run([programs() / "pg_dump", "-Fc", "-f", dump, "-d", here.url], check=True)
        said = [row.message for row in store.messages("c")]
        here.execute("CREATE DATABASE restored")
        elsewhere = here.url.replace("@/postgres?", "@/restored?")
        subprocess.run([programs() / "pg_restore", "-d", elsewhere, dump], check=True)
    with closing(PostgresStore(elsewhere)) as restored:
        assert [row.message for row in restored.messages("c")] == said
        assert [hit.seq for hit in restored.search("word7").hits] == [8]
        assert problems(restored) == []
        restored.append("c", [{"role": "assistant", "content": "goes on"}])
        assert problems(restored) == []
        with restored._db.plain() as connection:  # the planted defect: a dump without a payload
            connection.execute(
                b"DELETE FROM leporello.payloads WHERE hash = (SELECT hash FROM leporello.payloads LIMIT 1)"
            )
        assert problems(restored)
