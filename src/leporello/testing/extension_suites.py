"""What holds for every store and every redaction rule, as tests for the packages that bring one."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leporello.messages import Message
    from leporello.redact import Rule
    from leporello.store import Store

_KEY = "suite"


def _said(turns: int = 3) -> list[Message]:
    """Return turns with a call, its result and fields that only the host knows."""
    messages: list[Message] = [{"role": "system", "content": "You look after a harbour. ⚓"}]
    for turn in range(turns):
        function = {"name": "read_log", "arguments": json.dumps({"number": turn})}
        messages += [
            _asked(turn),
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": f"call_{turn}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": f"Container SFL-{turn:05} is at berth {turn}."},
            {"role": "assistant", "content": f"Log {turn} is read."},
        ]
    return messages


def _asked(turn: int) -> Message:
    asked = {"role": "user", "content": [{"type": "text", "text": f"Read log {turn}."}], "_ours": {"a": [1, None]}}
    return cast("Message", asked)


class StoreSuite:
    """Subclass this in a test file and define `open`; every promise of a store becomes a test."""

    def open(self, folder: Path) -> Store:
        """Open the store that is kept in this folder, or named after it; again, it is the same one."""
        raise NotImplementedError("define open() in your subclass of StoreSuite")

    def _stored(self, store: Store, **options: Any) -> list[Message]:
        return [row.message for row in store.messages(_KEY, system=True, **options)]

    def test_it_has_every_method(self, tmp_path: Path) -> None:
        """Nothing of the protocol is missing."""
        from leporello.store.address import STORE_MEMBERS

        with closing(self.open(tmp_path)) as store:
            assert {name for name in STORE_MEMBERS if not hasattr(store, name)} == set()

    def test_messages_come_back_as_they_were(self, tmp_path: Path) -> None:
        """With all fields and values, in order, also after it was opened again."""
        with closing(self.open(tmp_path)) as store:
            ids = store.append(_KEY, _said())
            assert len(set(ids)) == len(_said())
        with closing(self.open(tmp_path)) as store:
            assert self._stored(store) == _said()

    def test_the_same_list_again_adds_nothing(self, tmp_path: Path) -> None:
        """A host that hands over its whole list each time."""
        with closing(self.open(tmp_path)) as store:
            for turns in (1, 2, 2, 3):
                store.ingest(_KEY, _said(turns))
            assert self._stored(store) == _said()

    def test_a_fork_shares_what_was_before_and_nothing_after(self, tmp_path: Path) -> None:
        """Nothing is copied, and neither branch sees what the other one says."""
        with closing(self.open(tmp_path)) as store:
            ids = store.append(_KEY, _said())
            first = store.head(_KEY)
            branch = store.fork(_KEY, before=ids[-4])
            store.append(_KEY, [{"role": "user", "content": "Another question."}], branch=branch)
            assert self._stored(store, branch=branch) == [
                *_said()[:-4],
                {"role": "user", "content": "Another question."},
            ]
            assert self._stored(store, branch=first) == _said()
            assert len(store.branches(_KEY)) == 2

    def test_every_word_is_found(self, tmp_path: Path) -> None:
        """In texts, results and the arguments of calls."""
        with closing(self.open(tmp_path)) as store:
            ids = store.append(_KEY, _said())
            hits = store.search("SFL-00001", conversation=_KEY).hits
            assert [hit.id for hit in hits] == [ids[7]]

    def test_owners_are_apart(self, tmp_path: Path) -> None:
        """Nobody reads or finds what is another one's."""
        with closing(self.open(tmp_path)) as store:
            ids = store.append(_KEY, _said(), owner="ada")
            assert list(store.messages(_KEY, owner="bob")) == []
            assert not store.search("container", owner="bob").hits
            assert store.get(ids, owner="bob") == {}
            assert store.info(_KEY, owner="bob") is None

    def test_one_at_a_time_may_fold(self, tmp_path: Path) -> None:
        """A lease is one process's until it is given back."""
        with closing(self.open(tmp_path)) as store:
            store.append(_KEY, _said())
            assert store.acquire(_KEY, "one", seconds=60)
            assert not store.acquire(_KEY, "two", seconds=60)
            store.release(_KEY, "one")
            assert store.acquire(_KEY, "two", seconds=60)

    def test_what_is_exported_comes_in_again(self, tmp_path: Path) -> None:
        """As another conversation, word for word."""
        with closing(self.open(tmp_path)) as store:
            store.append(_KEY, _said())
            key = store.import_lines(store.export(_KEY), conversation="copy")
            assert [row.message for row in store.messages(key, system=True)] == _said()

    def test_what_is_deleted_is_gone(self, tmp_path: Path) -> None:
        """From the list, from search, and for good."""
        with closing(self.open(tmp_path)) as store:
            store.append(_KEY, _said())
            store.delete(_KEY)
            assert self._stored(store) == []
            assert not store.search("container").hits

    def test_a_session_folds_on_it_and_resumes_folded(self, tmp_path: Path) -> None:
        """With the lossless engine: the window that was sent last is there again, and everything is proven."""
        from leporello.lcm import verify
        from leporello.session import Session

        def session(store: Store) -> Session:
            return Session.open(_KEY, model="m", context_length=4_000, engine="lcm", store=store, config={}, llm=None)

        with closing(self.open(tmp_path)) as store:
            with session(store) as first:
                for turn in range(20):
                    first.add({"role": "user", "content": f"Turn {turn}. {'The berth is quiet. ' * 60}"})
                    first.request()
                    answer = {"role": "assistant", "content": f"Answer {turn}."}
                    first.record({"choices": [{"message": answer, "finish_reason": "stop"}]})
                folds, window = first.usage().compactions, first.window
            assert folds >= 2
            assert verify(store, _KEY) == []
        with closing(self.open(tmp_path)) as store, session(store) as second:
            assert second.window == window
            assert sum(1 for _ in store.messages(_KEY)) == 40


class RuleSuite:
    """Subclass this in a test file: name texts with a secret in them, and define `make_rule`."""

    examples: ClassVar[dict[str, str]] = {}
    """Texts, and the secret in each, which must not be found anywhere in the text again."""

    def make_rule(self) -> Rule:
        """Return the rule."""
        raise NotImplementedError("define make_rule() in your subclass of RuleSuite")

    def _hidden(self, text: str) -> Iterator[str]:
        from leporello.redact import Secret

        found = list(self.make_rule()(text))
        for secret in found:
            assert isinstance(secret, Secret)
            assert 0 <= secret.start < secret.end <= len(text), "a secret is a part of the text"
            yield text[secret.start : secret.end]

    def test_each_example_is_found(self) -> None:
        """Whatever stands around it."""
        assert self.examples, "name texts with a secret in them"
        for text, secret in self.examples.items():
            for around in (text, f"{text}\n{text}", json.dumps({"note": text}), f"[31m{text}[0m"):
                found = list(self._hidden(around))
                assert found, f"nothing is found in {around!r}"
                assert all(secret in one for one in found)
                assert len(found) == around.count(secret)

    def test_what_is_no_secret_stays(self) -> None:
        """In conversations about other things, and in the marks that stand for secrets."""
        from leporello.messages import text_of
        from leporello.testing.conversations import conversation

        for seed in range(20):
            for message in conversation(seed):
                assert list(self._hidden(text_of(message))) == []
        assert list(self._hidden("[REDACTED:password] [REDACTED:api-key]")) == []
