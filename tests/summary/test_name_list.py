"""The list of names at the end of a summary: what the window does not show, within its share."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from leporello import ContextCompressor, LCMEngine
from leporello.messages import Message, text_of
from leporello.redact import redact_messages
from leporello.summary.extract import name_list as module, salient_names
from leporello.summary.extract.name_list import MOST_NAMES, WORKING_SET, name_list, room_for_names, without_names
from leporello.summary.refire import Targets, request_limit
from leporello.tokens import count_messages, count_text

MANY = 10_000
BILLING = "/srv/app/billing.py"
FREE = Targets(goal=None, most=None, least=1)


def read(path: str, output: str, call_id: str = "c1") -> list[Message]:
    call = {
        "id": call_id,
        "type": "function",
        "function": {"name": "read_file", "arguments": json.dumps({"path": path})},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


def listed(leaving: list[Message], earlier: str = "", window: list[Message] | None = None, most: int = MANY) -> str:
    return name_list(redact_messages(leaving), earlier, window or [], most)


LEAVING: list[Message] = [
    *read(BILLING, "def close_month(rows): return sum_rows(rows)"),
    {"role": "assistant", "content": f"In {BILLING} open_ledger is wrong."},
]


class TestLines:
    def test_names_stand_under_their_file_the_used_ones_before_those_that_were_only_read(self) -> None:
        assert f"- {BILLING} — open_ledger; read: close_month, sum_rows" in listed(LEAVING).splitlines()

    def test_what_the_window_shows_is_not_told_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        window: list[Message] = [{"role": "user", "content": "close_month in billing.py gives sum_rows of rows."}]
        assert "close_month" not in listed(LEAVING, window=window)
        assert "open_ledger" in listed(LEAVING, window=window)
        monkeypatch.setattr(module, "_shown", lambda *_: set())  # defect: it does not look
        assert "close_month" in listed(LEAVING, window=window)

    def test_what_a_call_in_the_window_holds_is_not_told_again(self) -> None:
        window = read("/tmp/x", "ok")
        window[0]["tool_calls"][0]["function"]["arguments"] = json.dumps({"text": "rows:\nclose_month, sum_rows"})
        assert "close_month" not in listed(LEAVING, window=window)

    def test_what_a_program_printed_is_left_out(self) -> None:
        leaving = read(BILLING, "\n".join(["test_rows_01 passed"] * 3))
        leaving[0]["tool_calls"][0]["function"] = {
            "name": "shell",
            "arguments": '{"command": "pytest tests/test_a.py"}',
        }
        assert "test_rows_01" not in listed(leaving)
        assert "test_rows_01" in listed(read(BILLING, "\n".join(["test_rows_01 passed"] * 3)))

    @pytest.mark.parametrize("most", [0, 5, 30, 60, 200])
    def test_it_keeps_to_its_room(self, most: int) -> None:
        leaving = read(BILLING, "\n".join(f"def helper_{n:03}(row): return row_{n:03}" for n in range(300)))
        assert count_text("\n\n" + listed(leaving, most=most)) <= max(1, most)

    def test_no_secret_stands_in_it(self) -> None:
        key = "sk-proj-" + "a1B2" * 12
        assert key not in listed([*LEAVING, {"role": "assistant", "content": f"set api_key_name to {key}"}])


class TestUpdate:
    def test_what_was_listed_before_stays_listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        later: list[Message] = [{"role": "assistant", "content": "Then retry_policy was set to never."}]
        again = listed(later, earlier=listed(LEAVING))
        assert f"- {BILLING} — open_ledger; read: close_month, sum_rows" in again.splitlines()
        assert "retry_policy" in again
        monkeypatch.setattr(module, "_recall", lambda *_: None)  # defect: it forgets
        assert "open_ledger" not in listed(later, earlier=listed(LEAVING))

    def test_names_that_a_summary_no_longer_tells_go_to_the_list(self) -> None:
        summary = f"## Relevant Files\n- {BILLING} — open_ledger, written 2×\n\n## Critical Context\n- TAX_RATE (year)"
        lines = listed([], earlier=summary).splitlines()
        assert lines == ["## Names", f"- {BILLING} — open_ledger", "- TAX_RATE (year)"]

    def test_a_sentence_of_a_summary_is_no_name(self) -> None:
        summary = f"## Relevant Files\n- {BILLING} — the module to change\n\n## Critical Context\n- broken (again)"
        assert listed([], earlier=summary).splitlines() == ["## Names", f"- {BILLING} (change, module)"]

    def test_it_comes_off_the_summary_before_that_is_updated(self) -> None:
        summary = "## Goal\n- close the month"
        assert without_names(f"{summary}\n\n{listed(LEAVING)}") == summary
        assert without_names(summary) == summary


class TestWords:
    READ = read(BILLING, "plug :protect_session\nrows = sum_rows(ledger)\ndef close_month(rows, ledger): ...")

    def test_a_name_that_was_only_read_stands_beside_words_of_its_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "protect_session (plug)" in listed(self.READ)
        monkeypatch.setattr(salient_names, "_lines_with", lambda *_: ())  # defect: it does not look at the lines
        assert "protect_session (plug)" not in listed(self.READ)

    def test_where_the_other_names_of_the_file_are_such_words_there_are_no_more(self) -> None:
        both = read(BILLING, "ledger_rows = open_ledger(monthly_rows)\nmonthly_rows = open_ledger(ledger_rows)")
        assert f"- {BILLING} — read: ledger_rows, monthly_rows, open_ledger" in listed(both).splitlines()

    def test_a_name_that_was_used_with_its_file_needs_none(self) -> None:
        said: list[Message] = [{"role": "assistant", "content": f"In {BILLING} protect_session is wrong."}]
        assert "protect_session (" not in listed([*self.READ, *said])

    def test_the_words_stay_with_the_name_at_the_next_fold(self) -> None:
        assert "protect_session (plug)" in listed([], earlier=listed(self.READ))


class TestNamesOfNoFile:
    SAID: ClassVar[list[Message]] = [
        {"role": "assistant", "content": f"The flight leaves Houston as {name}."} for name in ("HAT009", "HAT013")
    ]

    def test_names_beside_the_same_words_share_a_line(self) -> None:
        assert listed(self.SAID).splitlines()[1:] == ["- HAT013, HAT009 (houston, leaves, flight)"]

    def test_each_of_them_is_known_at_the_next_fold(self) -> None:
        again = listed([], earlier=listed(self.SAID))
        assert again.splitlines()[1:] == ["- HAT009, HAT013 (flight, houston, leaves)"]
        window: list[Message] = [{"role": "user", "content": "Is it HAT009, the flight to Houston?"}]
        assert listed([], earlier=listed(self.SAID), window=window).splitlines()[1:] == [
            "- HAT013 (flight, houston, leaves)"
        ]

    def test_a_line_holds_no_more_than_can_be_read(self) -> None:
        said: list[Message] = [
            {"role": "assistant", "content": f"The flight leaves Houston as HAT{n:03}."} for n in range(45)
        ]
        lines = listed(said).splitlines()[1:]
        assert len(lines) == 3
        assert sum(line.count("HAT") for line in lines) == 45

    def test_more_of_them_fit_into_the_same_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said: list[Message] = [
            {"role": "assistant", "content": f"The flight leaves Houston as HAT{n:03}."} for n in range(45)
        ]
        together = listed(said, most=150).count("HAT")
        monkeypatch.setattr(module, "_MOST_PER_LINE", 1)  # defect: each in a line of its own
        assert together > 1.5 * listed(said, most=150).count("HAT")


class TestRoom:
    def test_all_names_together_have_their_share_of_the_window(self) -> None:
        summary = f"## Relevant Files\n- {BILLING} — open_ledger, close_month, written"
        for texts in ([], [summary]):
            room = room_for_names(texts, 10_000, 50_000, FREE)
            names = count_text("open_ledger, close_month") + 1 if texts else 0
            assert (room + names) / (10_000 + room) == pytest.approx(MOST_NAMES, abs=0.001)

    def test_a_small_window_has_the_share_that_it_has_when_it_is_full(self) -> None:
        targets = Targets(goal=16_000, most=30_000, least=1)
        assert room_for_names([], 8_000, 50_000, targets) == int(16_000 * MOST_NAMES)
        assert room_for_names([], 12_000, 50_000, Targets(goal=90_000, most=99_000, least=1)) == WORKING_SET

    def test_a_fold_still_fits_and_is_worth_it(self) -> None:
        assert room_for_names([], 10_000, 50_000, Targets(goal=10_100, most=30_000, least=1)) == 100
        assert room_for_names([], 10_000, 12_000, Targets(goal=20_000, most=30_000, least=1_900)) == 100

    def test_what_cannot_be_folded_leaves_it_the_room_of_the_model(self) -> None:
        assert room_for_names([], 12_000, 50_000, Targets(goal=10_000, most=12_500, least=1)) == 500

    def test_a_larger_limit_counts_beside_what_is_unread(self) -> None:
        targets = Targets(goal=10_000, most=12_500, least=1)
        assert room_for_names([], 9_800, 50_000, targets) == 200
        assert room_for_names([], 9_800, 50_000, targets, limit=11_000) == 1_200


def conversation(turns: int) -> list[Message]:
    messages: list[Message] = [{"role": "user", "content": "Close the month."}]
    for n in range(turns):
        body = "\n".join(f"def step_{n:03}_{k:02}(row): return row" for k in range(25))
        messages += read(f"/srv/app/part_{n:03}.py", body, f"c{n}")
    return [*messages, {"role": "user", "content": "And now?"}]


class TestEngines:
    def names(self, window: list[Message]) -> list[str]:
        texts = [text_of(message) for message in window if "\n## Names\n" in text_of(message)]
        return [text.partition("\n## Names\n")[2] for text in texts]

    @pytest.mark.parametrize("make", [ContextCompressor, lambda size: LCMEngine(size, store=":memory:")])
    def test_one_list_stands_behind_the_account_fold_after_fold(self, make: Any) -> None:
        engine = make(32_000)
        engine.on_session_start("x")
        window = engine.compress(conversation(60), force=True)
        assert len(self.names(window)) == 1
        more = [*window, *conversation(100)[121:]]
        again = engine.compress(more, force=True)
        assert len(self.names(again)) == 1
        assert "step_0" in self.names(again)[0]
        assert count_messages(again) < engine.threshold_tokens

    def test_the_names_of_an_output_are_listed_as_it_is_masked(self) -> None:
        engine = LCMEngine(32_000, store=":memory:")
        engine.on_session_start("x")
        window = engine.compress(conversation(60), force=True)
        masked = [m for m in window if m.get("role") == "tool" and text_of(m).startswith("[Old tool output cleared")]
        number = masked[-1]["tool_call_id"].removeprefix("c")
        assert f"step_{int(number):03}_" in self.names(window)[0]

    @pytest.mark.parametrize("make", [ContextCompressor, lambda size: LCMEngine(size, store=":memory:")])
    def test_a_full_tail_leaves_room_for_it(self, make: Any) -> None:
        body = "\n".join(f"def early_step_{k:03}(row): return row" for k in range(400))
        messages = [*read("/srv/app/early.py", body, "e")]
        for n in range(7):
            messages += read(f"/srv/app/late_{n}.py", "a line of plain words\n" * 500, f"l{n}")
        ask: Message = {"role": "user", "content": "Close the month."}
        engine = make(32_000)
        engine.on_session_start("x")
        window = engine.compress([ask, *messages, {"role": "assistant", "content": "Read."}], force=True)
        assert self.names(window)
        assert "early_step_" in self.names(window)[0]
        assert count_messages(window) < engine.threshold_tokens

    def test_what_is_unread_leaves_blocks_and_names_their_shares(self, monkeypatch: pytest.MonkeyPatch) -> None:
        unread = read("/srv/app/large.py", "a line of plain words\n" * 4_100, "u")

        def folded() -> list[Message]:
            engine = LCMEngine(32_000, store=":memory:")
            engine.on_session_start("x")
            window = engine.compress([*conversation(60), *unread])
            assert window[-1] == unread[-1]
            assert count_messages(window) <= request_limit(32_000)
            return window

        def account(window: list[Message]) -> int:
            return sum(count_text(text_of(message)) for message in window if self.names([message]))

        assert count_messages(unread) > 0.85 * LCMEngine(32_000, store=":memory:").threshold_tokens
        assert account(folded()) > 4_500
        monkeypatch.setattr(Targets, "beside_unread", lambda self, *_: self.goal)  # defect: the threshold is the limit
        assert account(folded()) < 3_000

    def test_what_is_only_masked_leaves_its_names_in_a_short_history(self) -> None:
        body = "\n".join(f"def early_step_{k:03}(row): return row" for k in range(300))
        messages = [*read("/srv/app/early.py", body, "e"), *read("/srv/app/late.py", "plain words\n" * 3_000, "l")]
        engine = LCMEngine(32_000, store=":memory:")
        engine.on_session_start("x")
        ask: Message = {"role": "user", "content": "Close the month."}
        window = engine.compress([ask, *messages, {"role": "assistant", "content": "Read."}], force=True)
        assert any("early_step_" in text_of(message) for message in window)

    def test_the_documented_window_has_no_list(self) -> None:
        engine = ContextCompressor(32_000, config={"masked_zone": 0.0})
        engine.on_session_start("x")
        assert self.names(engine.compress(conversation(60), force=True)) == []
