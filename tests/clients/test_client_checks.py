"""What `make clients` checks, in a short form: the Python packages in a session that folds, and planted defects."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from clients.agents.codex import Codex
from clients.agents.sdks import PythonAnthropic, PythonChat, PythonResponses
from clients.checks import examine
from clients.client import Client, ClientFailedError
from clients.drive import drive
from clients.recording import Record, Relay
from clients.results import markdown, record
from clients.session import Session
from clients.wrapping import left_behind, listing

from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.checks import Findings

pytestmark = pytest.mark.slow

GATEWAY = "http://127.0.0.1:8765"
SCREEN = f"codex runs behind {GATEWAY}, its own key goes on"
INSTALLED = Path(sys.prefix)  # both packages are here already


def short(client: type[Client]) -> Client:
    """Return a client with a session of a few turns, which still folds."""

    class Short(client):  # type: ignore[misc, valid-type]
        turns: ClassVar[int] = 14
        window: ClassVar[int] = 12_000
        log_tokens: ClassVar[int] = 900

    made: Client = Short()
    return made


def check(found: Findings) -> None:
    """It was folded several times, and nothing is wrong."""
    assert found.problems == []
    assert found.folds >= 2
    assert found.verbatim >= 3
    assert found.folded >= 3
    assert found.streamed is True
    assert (found.conversations, found.branches) == (1, 1)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded session of the chat completions."""
    folder = tmp_path_factory.mktemp("recorded") / "session"
    check(drive(short(PythonChat), INSTALLED, folder))
    return folder


@pytest.mark.parametrize("client", [PythonResponses, PythonAnthropic])
def test_a_session_of_the_official_package_is_folded_and_nothing_is_wrong(client: type[Client], tmp_path: Path) -> None:
    check(drive(short(client), INSTALLED, tmp_path / "session"))


def examined(folder: Path, spoil: Callable[[list[Record], list[Record]], None], answer: str = "") -> Findings:
    """Look at a recorded session once more, with a defect in what was recorded."""
    client = short(PythonChat)
    asked = Session(client, seed=1)
    asked.turn = client.turns
    before, behind = Relay(records=_records(folder / "client.json")), Relay(records=_records(folder / "provider.json"))
    spoil(before.records, behind.records)
    with closing(open_store(str(folder / "store.db"))) as store:
        return examine(client, asked, before, behind, store, answer or asked.fact)


def _records(file: Path) -> list[Record]:
    told = json.loads(file.read_text(encoding="utf-8"))
    return [Record(**{**one, "body": one["body"].encode(), "answer": one["answer"].encode()}) for one in told]


def changed(record: Record, change: Callable[[dict[str, Any]], Any]) -> Record:
    body = json.loads(record.body)
    change(body)
    return replace(record, body=json.dumps(body).encode())


def put(index: int, change: Callable[[dict[str, Any]], Any]) -> Callable[[list[Record], list[Record]], None]:
    def spoil(before: list[Record], behind: list[Record]) -> None:
        behind[index] = changed(behind[index], change)

    return spoil


def write_anew(before: list[Record], behind: list[Record]) -> None:
    body = json.dumps(json.loads(behind[2].body), separators=(",", ":"), ensure_ascii=False)
    behind[2] = replace(behind[2], body=body.replace('{"', '{ "', 1).encode())


def refuse(before: list[Record], behind: list[Record]) -> None:
    behind[-1] = replace(behind[-1], status=400)


def forget_the_end(before: list[Record], behind: list[Record]) -> None:
    behind[-1] = replace(behind[-1], answer=b"data: something else\n\n")


DEFECTS: dict[str, tuple[Callable[[list[Record], list[Record]], None], str]] = {
    "a field is left out": (put(-1, lambda body: body.pop("tools")), "the client's tools are not as it sent them"),
    "a field is changed": (put(-1, lambda body: body.update(model="another")), "another field than the history"),
    "a field is changed before any fold": (put(2, lambda body: body.update(model="m")), "it was changed, and is not"),
    "the bytes are other ones": (write_anew, "no field differs, but the bytes do"),
    "something is left out before any fold": (
        put(1, lambda body: body["messages"].pop(0)),
        "shorter than one that went on as it was",
    ),
    "the newest message is cut": (
        put(-1, lambda body: body["messages"][-1].update(content="At which hook?")),
        "the newest message of the user",
    ),
    "an unread output is cut": (
        put(-4, lambda body: body["messages"][-1].update(content="Log 13 [shortened]")),
        "what the model has not read yet",
    ),
    "a folded request is refused": (refuse, "400: "),
    "an answer has other bytes": (forget_the_end, "other bytes than the provider sent"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_in_a_request_is_found(defect: str, session: Path) -> None:
    spoil, told = DEFECTS[defect]
    assert examined(session, lambda *_: None).problems == []
    problems = examined(session, spoil).problems
    assert any(told in problem for problem in problems), problems


def test_a_fact_that_is_not_found_again_is_told(session: Path) -> None:
    assert "was not found again" in str(examined(session, lambda *_: None, answer="I do not know.").problems)


def test_a_second_conversation_and_a_lost_output_are_told(session: Path, tmp_path: Path) -> None:
    client = short(PythonChat)
    asked = Session(client, seed=1)
    asked.turn = client.turns
    with closing(open_store(str(tmp_path / "store.db"))) as store:
        for name in ("one", "two"):
            store.append(name, [{"role": "user", "content": "hello"}])
        problems = examine(client, asked, Relay(), Relay(), store, asked.fact).problems
    assert "2 conversations were made, not 1" in problems
    assert "the output of turn 1 is stored 0 times" in problems


def test_a_client_that_cannot_be_installed_is_in_the_table() -> None:
    error = str(ClientFailedError("it cannot be installed: no such package"))
    told = record(PythonChat(), "", None, error, 1.0)
    page = markdown({"clients": {"openai for Python (Chat)": told}, "wrapped": {}})
    assert "no: it cannot be installed: no such package" in page


CHANGES = {
    ".bashrc": ("export A=1", "changed outside of its own folders"),
    ".bashrc.backup": ("as it was", "changed outside of its own folders"),
    ".codex/config.toml": (f'base_url = "{GATEWAY}/v1"', "names the gateway"),
    ".codex/log.txt": (f"asked {GATEWAY}", ""),
    "../leporello/store.db": ("a conversation", ""),
}
"""What may be different in a user's home after a run, and what is told of it."""


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_run_leaves_behind_is_told(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".codex").mkdir(parents=True)
    (home / ".bashrc").write_text("as it was", "utf-8")
    before = listing(tmp_path)
    assert left_behind(Codex(), before, tmp_path, SCREEN) == []
    text, told = CHANGES[name]
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).write_text(text, "utf-8")
    assert [told in problem for problem in left_behind(Codex(), before, tmp_path, SCREEN)] == [True] * bool(told)


def test_what_a_run_removes_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".bashrc").write_text("as it was", "utf-8")
    before = listing(tmp_path)
    (tmp_path / "home" / ".bashrc").unlink()
    assert ".bashrc" in str(left_behind(Codex(), before, tmp_path, SCREEN))
