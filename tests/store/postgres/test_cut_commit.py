"""A connection that is cut while a change is committed: what was appended is there once, whether it was made or not."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlencode

import psycopg
import pytest

from leporello import Session
from leporello.errors import CommitUnknownError
from leporello.llm import ScriptedLLM
from leporello.session.persistence import Persistence
from leporello.store.postgres import PostgresStore
from leporello.store.postgres.address import parse
from leporello.store.relational import messages as appending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.databases import Schemas

    from leporello.messages import Message

Cut = Literal["before", "after"]
CUTS: tuple[Cut, ...] = ("before", "after")
COMMIT = b"COMMIT\0"


class Network:
    """The way to the server. It can cut a connection before the next COMMIT arrives, or after it was carried out."""

    def __init__(self) -> None:
        self.cut: Cut | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        """Return the address of a server as it is reached through here."""
        address = parse(url)
        with psycopg.connect(address.conninfo) as connection:
            info = connection.info
            self._server = info.host, info.port
            name, port = info.dbname, self._listener.getsockname()[1]
            who = {"user": info.user, "password": info.password, "sslmode": "disable", "schema": address.schema}
        return f"postgresql://127.0.0.1:{port}/{name}?{urlencode(who, quote_via=quote)}"

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            Way(self, client, _connected(*self._server))


def _connected(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    found = socket.socket(socket.AF_UNIX)
    found.connect(f"{host}/.s.PGSQL.{port}")
    return found


class Way:
    """One connection."""

    def __init__(self, network: Network, client: socket.socket, database: socket.socket) -> None:
        self._network, self._client, self._database = network, client, database
        self._lost = False
        for run in (self._to_server, self._from_server):
            threading.Thread(target=run, daemon=True).start()

    def _to_server(self) -> None:
        with self._client, self._database:
            while data := _received(self._client):
                if COMMIT in data and self._network.cut:
                    self._lost, cut, self._network.cut = True, self._network.cut, None
                    if cut == "before":
                        break
                self._database.sendall(data)
            _shut(self._client)
            _shut(self._database)

    def _from_server(self) -> None:
        while data := _received(self._database):
            if self._lost:
                break
            self._client.sendall(data)
        _shut(self._client)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        connection.close()


@pytest.fixture
def network() -> Iterator[Network]:
    with closing(Network()) as found:
        yield found


@pytest.fixture
def store(schemas: Schemas, network: Network) -> Iterator[PostgresStore]:
    with closing(PostgresStore(network.url(schemas.url()))) as found:
        found.append("other", said("the tables are made"))
        yield found


def said(*texts: str) -> list[Message]:
    return [{"role": "user", "content": text} for text in texts]


def texts(store: PostgresStore) -> list[Any]:
    return [row.message["content"] for row in store.messages("c")]


@pytest.mark.parametrize("cut", CUTS)
def test_what_may_be_there_is_stored_again_only_if_it_is_not(store: PostgresStore, network: Network, cut: Cut) -> None:
    store.append("c", said("one"))
    network.cut = cut
    with pytest.raises(CommitUnknownError) as caught:
        store.append("c", said("two", "three"))
    assert texts(store) == (["one"] if cut == "before" else ["one", "two", "three"])
    ids = store.append("c", said("two", "three"), attempted=caught.value.ids)
    assert texts(store) == ["one", "two", "three"]
    assert (ids == caught.value.ids) is (cut == "after")
    assert [row.id for row in store.messages("c")][1:] == list(ids)
    assert store.check_chain("c") == store.check_index("c") == store.check_file() == []


def test_another_message_by_such_an_id_is_not_taken_for_it(store: PostgresStore) -> None:
    ids = store.append("c", said("one"))
    assert store.append("c", said("two"), attempted=ids) != ids
    assert texts(store) == ["one", "two"]


def talk(store: PostgresStore, network: Network, cut: Cut) -> tuple[list[Any], int]:
    """Have a conversation, and cut each second commit of a message; return what is stored, and the requests."""
    with closing(Session.open("c", store=store, model="gpt-4o")) as session:
        session.add({"role": "system", "content": "be brief"})
        for turn in range(4):
            network.cut = cut if turn % 2 else None
            session.add({"role": "user", "content": f"question {turn}"})
            session.request()
            network.cut = cut if turn else None
            session.record({"role": "assistant", "content": f"answer {turn}"})
    requests = [row for row in store.journal("c") if row.reason == "request"]
    return texts(store), len(requests)


SAID = [f"{kind} {turn}" for turn in range(4) for kind in ("question", "answer")]


@pytest.mark.parametrize("cut", CUTS)
def test_a_session_stores_each_message_and_each_request_once(store: PostgresStore, network: Network, cut: Cut) -> None:
    assert talk(store, network, cut) == (SAID, 4)
    assert store.check_chain("c") == store.check_file() == []


def told(store: PostgresStore, key: str, work: Callable[..., list[Message]]) -> tuple[list[str], list[Any]]:
    """Fold and undo in a conversation, and go on; return why there are rows in its journal, and its window."""
    llm = ScriptedLLM("## Goal\nFix it.\n\n## Progress\n### Done\n- Read src/app.py.", context_length=64_000)
    with closing(Session.open(key, store=store, model="m", context_length=8_000, llm=llm)) as session:
        for turn in range(4):
            for message in work(turn, turn + 1, 400):
                if message["role"] == "assistant":
                    session.request()
                session.add(message)
            assert turn < 2 or session.compress().folded
        session.undo()
        session.add({"role": "user", "content": "go on"})
        session.request()
        session.record({"role": "assistant", "content": "done"})
    with closing(Session.open(key, store=store, model="m", context_length=8_000, llm=llm)) as session:
        window = [message["content"] for message in session.request()["messages"]]
    return sorted(row.reason for row in store.journal(key)), window


def cuts_the_journal(network: Network, cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut every second commit that writes to the journal alone."""

    def cutting(write: Any) -> Any:
        cuts = cycle((cut, None))

        def cut_off(*arguments: Any, **options: Any) -> Any:
            network.cut = next(cuts)
            try:
                return write(*arguments, **options)
            finally:
                network.cut = None

        return cut_off

    for name in ("record_request", "save_window"):
        monkeypatch.setattr(PostgresStore, name, cutting(getattr(PostgresStore, name)))


@pytest.mark.parametrize("cut", CUTS)
def test_a_session_writes_each_row_of_its_journal_once(
    store: PostgresStore,
    network: Network,
    cut: Cut,
    work: Callable[..., list[Message]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = told(store, "whole", work)
    cuts_the_journal(network, cut, monkeypatch)
    found = told(store, "c", work)
    assert found[0] == whole[0]
    assert found[1] == whole[1] or cut == "before"  # the undo goes back to what the store has: no fold
    # Planted: whether a row is there is not looked up.
    monkeypatch.setattr(Persistence, "_is_there", lambda *_: False)
    assert (told(store, "careless", work)[0] == whole[0]) is (cut == "before")


def test_planted_a_session_that_does_not_look_whether_it_is_there_is_noticed(
    store: PostgresStore, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "_are_there", lambda *_: False)
    found, requests = talk(store, network, "after")
    assert len(found) > len(SAID)
    assert requests > 4
