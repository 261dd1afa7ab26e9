"""Errors, commands, decisions and values are found wherever they stand, and bounded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.redact import redact_messages
from leporello.summary.artifacts import Artifacts, collect as collect_redacted, gather
from leporello.summary.artifacts.values import pairs_at

if TYPE_CHECKING:
    from collections.abc import Callable

NEEDLES = (
    "E   AssertionError: balance is 48213.77, expected 50000",
    "/srv/ledger/accounts_2291.yaml",
    "retry_budget: 7731",
)


def collect(messages: list[Any]) -> Artifacts:
    """Gather from messages as an engine does."""
    return collect_redacted(redact_messages(messages))


FILLER = "the quick brown fox walks over the quiet hill and says nothing of interest\n"


def call(arguments: dict[str, Any], name: str = "terminal", call_id: str = "c1") -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def answer(text: str, call_id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def texts(artifacts: Artifacts) -> list[str]:
    kinds = (artifacts.files, artifacts.commands, artifacts.errors, artifacts.decisions, artifacts.values)
    return [trace.text for kind in kinds for trace in kind]


HAYSTACK = FILLER * 1_400 + "\n".join(NEEDLES) + "\n" + FILLER * 1_400
PLACES: dict[str, dict[str, Any]] = {
    "the middle of a long output": answer(HAYSTACK),
    "a JSON output": answer(json.dumps({"exit_code": 0, "output": HAYSTACK})),
    "list content": {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": HAYSTACK}]},
    "the end of long arguments": call({"content": FILLER * 2_000 + "\n".join(NEEDLES)}, "note"),
    "nested arguments": call({"edits": [{"text": HAYSTACK}]}, "note"),
    "what a user pasted": {"role": "user", "content": "Look at this:\n" + HAYSTACK},
    "a JSON output that was cut off": answer(json.dumps({"output": HAYSTACK})[:-40]),
}


def assert_nothing_missed(gather: Callable[[list[Any]], Artifacts], message: dict[str, Any]) -> None:
    """Reject a collector that overlooks an error line, a path or a number."""
    found = texts(gather([{"role": "user", "content": "hello"}, message]))
    for needle in NEEDLES:
        assert any(needle in text for text in found), needle


@pytest.mark.parametrize("place", PLACES)
def test_error_path_and_number_are_found_in(place: str) -> None:
    assert_nothing_missed(collect, PLACES[place])


def ends_only(messages: list[Any]) -> Artifacts:
    """Look at the ends of long outputs only: the defect that the check must catch."""
    return collect(
        [
            {**m, "content": m["content"][:2_000] + m["content"][-2_000:]} if isinstance(m.get("content"), str) else m
            for m in messages
        ]
    )


def test_the_check_rejects_a_collector_that_drops_the_middle() -> None:
    with pytest.raises(AssertionError):
        assert_nothing_missed(ends_only, PLACES["the middle of a long output"])


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: invalid literal for int() with base 10: 'x'",
        "requests.exceptions.HTTPError: 404 Client Error",
        "E       assert 3 == 4",
        "FAILED tests/test_api.py::test_create - KeyError: 'name'",
        "src/main.c:12:5: error: expected ';' before 'return'",
        "error[E0308]: mismatched types",
        "error TS2304: Cannot find name 'foo'.",
        "npm ERR! code ELIFECYCLE",
        "panic: runtime error: index out of range [3]",
        "thread 'main' panicked at src/main.rs:4:5:",
        "Segmentation fault (core dumped)",
        "fatal: not a git repository",
        "bash: foo: command not found",
        "cat: x.txt: No such file or directory",
        "2024-05-01 12:00:01 ERROR payment failed for order 17",
        "HTTP/1.1 503 Service Unavailable",
        "status code: 429",
        "exit code: 137",
        "** (RuntimeError) could not start",
        "TypeError: Cannot read properties of undefined (reading 'id')",
        "错误：找不到文件",
        "连接失败: 拒绝访问",
    ],
)
def test_an_error_line_is_kept_as_it_stands(line: str) -> None:
    assert [trace.text for trace in collect([answer(f"some output\n{line}\nmore output")]).errors] == [line]


@pytest.mark.parametrize(
    "line",
    [
        "    raise ValueError('no')",
        "except KeyError as error:",
        "  12→    error: string;",
        'logger.error("failed to %s", x)',
        "error: (err) => {",
        "error: null",
        "# Error: this is a comment",
        "0 errors, 3 warnings",
        "exit code: 0",
        "HTTP/1.1 200 OK",
    ],
)
def test_code_about_errors_is_no_error(line: str) -> None:
    assert collect([answer(f"some output\n{line}\nmore output")]).errors == ()


def test_the_cause_of_a_traceback_is_found_whatever_its_name() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\nmy.Problem: it broke'
    assert "my.Problem: it broke" in texts(collect([answer(text)]))


def test_repeated_errors_are_counted_once_with_their_places() -> None:
    errors = collect(
        [answer("KeyError: 1"), {"role": "user", "content": "again"}, answer("KeyError: 1\nKeyError: 1")]
    ).errors
    assert [(trace.text, trace.count, trace.first, trace.last) for trace in errors] == [("KeyError: 1", 2, 0, 2)]


def test_a_very_long_error_line_is_bounded() -> None:
    (trace,) = collect([answer("ValueError: " + "x" * 100_000)]).errors
    assert len(trace.text) < 400
    assert trace.text.startswith("ValueError: xxx")


@pytest.mark.parametrize(
    ("output", "outcome", "detail"),
    [
        ("collected 10 items\n===== 8 passed, 2 failed in 0.3s =====", "failed", "8 passed, 2 failed"),
        ("10 passed in 0.1s", "ok", "10 passed"),
        ('{"exit_code": 0, "output": "fine"}', "ok", ""),
        ('{"exit_code": 2, "output": "make: *** error: no rule"}', "failed", "exit code 2"),
        ("Exit code 1\nfatal: not a git repository", "failed", "exit code 1, fatal: not a git repository"),
        ("Error: gift card balance is not enough", "failed", "Error: gift card balance is not enough"),
        ('{"success": false, "message": "no seats"}', "failed", ""),
        ("Tests:       2 failed, 8 passed, 10 total", "failed", "2 failed, 8 passed, 10 total"),
        ("", "unknown", ""),
        ("all good", "ok", ""),
    ],
)
def test_a_command_knows_its_outcome(output: str, outcome: str, detail: str) -> None:
    (trace,) = collect([call({"command": "make test"}), answer(output)]).commands
    assert (trace.text, trace.outcome) == ("make test", outcome)
    assert detail in trace.detail


def test_a_call_without_a_result_is_open() -> None:
    assert collect([call({"command": "sleep 100"})]).commands[0].outcome == "unknown"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("use order-7f3a-2291 for it", "order-7f3a-2291"),
        ("see JIRA-4711", "JIRA-4711"),
        ("id 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
        ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "9fceb02d0ae598e95dc970b74767f19372d61af8"),
        ("docs at https://example.org/a?b=1", "https://example.org/a?b=1"),
        ("needs django==4.2.11", "django==4.2.11"),
        ("it costs $1,234.50 in all", "$1,234.50"),
        ("listening on 127.0.0.1:8443", "127.0.0.1:8443"),
        ("set DATABASE_URL=postgres-main", "DATABASE_URL=postgres-main"),
        ("timeout = 4500", "timeout: 4500"),
        ('"user_id": "mia_li_3668"', "user_id: mia_li_3668"),
        ("limit of 250 requests", "limit of 250 requests"),
        ("端口是8080，超时为3000毫秒", "端口: 8080"),
        ("订单号：ORD-20931", "ORD-20931"),
    ],
)
def test_an_exact_value_is_kept_with_its_name(text: str, value: str) -> None:
    assert any(value in found for found in texts(collect([{"role": "user", "content": text}])))


def test_a_value_that_a_person_named_ranks_above_one_in_an_output() -> None:
    values = {
        trace.text: trace
        for trace in collect([answer("port: 9001"), {"role": "user", "content": "use port: 9002"}]).values
    }
    assert values["port: 9002"].rank > values["port: 9001"].rank


@pytest.mark.parametrize(
    "text",
    ["I'll use SQLite instead of PostgreSQL here.", "We decided to keep the old name.", "我们决定改用异步写入。"],
)
def test_a_decision_is_kept(text: str) -> None:
    assert [
        trace.text for trace in collect([{"role": "assistant", "content": f"Hello there. {text} Bye."}]).decisions
    ] == [text]


def test_placeholders_are_no_part_of_the_conversation() -> None:
    assert texts(collect([answer("[Old tool output cleared to save context space]")])) == []


def test_a_text_that_begins_like_a_summary_is_read_for_what_is_exact() -> None:
    marked = "[CONTEXT COMPACTION] Earlier turns were compacted.\n## Goal\n- x\n- error: OldError: 1"
    assert texts(collect([{"role": "user", "content": marked}])) == ["OldError: 1"]


def parts(conversation: list[dict[str, Any]], cut_at: int) -> tuple[Artifacts, Artifacts]:
    return collect(conversation[:cut_at]), collect(conversation[cut_at:])


def test_two_halves_merge_into_the_whole() -> None:
    conversation = [
        {"role": "user", "content": "Fix src/app.py, port: 8080"},
        call({"path": "src/app.py"}, "read_file"),
        answer("KeyError: 'x'"),
        {"role": "user", "content": "again, see src/app.py"},
        call({"path": "src/app.py"}, "read_file", "c2"),
        answer("KeyError: 'x'", "c2"),
    ]
    old, new = parts(conversation, 3)
    assert old.merge(new, offset=3) == collect(conversation)


@pytest.mark.slow
def test_what_is_kept_is_bounded_and_keeps_the_newest() -> None:
    messages = [answer(f"src/mod_{i}.py ticket ABC-{10_000 + i} KeyError: {i}\nKeyError: {i}") for i in range(6_000)]
    found = collect(messages)
    assert len(found.files) <= 2_000
    assert len(found.values) <= 2_000
    assert len(found.errors) <= 500
    assert found.files[-1].text == "src/mod_5999.py"
    assert found.errors[-1].text == "KeyError: 5999"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "tool_calls", "function", "arguments", "id", "type", "text", "path", "command"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        JUNK
        | st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool"]), "content": JUNK, "tool_calls": JUNK}
        ),
        max_size=6,
    )
)
def test_broken_messages_never_raise_and_the_result_is_the_same_again(messages: list[Any]) -> None:
    assert collect(messages) == collect(messages)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "a" * 2_000_000,
        "/" * 500_000,
        "a-" * 500_000,
        "error " * 300_000,
        "x: 1\n" * 200_000,
        "{" * 100_000,
        "[1," * 100_000,
        "1." * 400_000,
        "\\n" * 400_000,
        "Traceback (most recent call last)\n" * 20_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    """The suite's time limit is the check: anything quadratic takes hours here."""
    found = collect([answer(text), call({"command": text}), {"role": "user", "content": text}])
    assert len(texts(found)) < 6_000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("limit: int = 250", ["limit: 250"]),
        ("let max: usize = 4096;", ["max: 4096"]),
        ("started at 2026-11-15T04:12:33Z", []),
        ("请把它改成：服务端口：8080", ["服务端口: 8080"]),
        ('"retries": 3', ["retries: 3"]),
        ("POST tide.example:8443/events", ["address: tide.example:8443/events"]),
        ("tide.maximum: 4711", ["tide.maximum: 4711"]),
    ],
)
def test_a_number_has_the_name_that_a_reader_would_give_it(text: str, found: list[str]) -> None:
    assert [pair for _, pair in pairs_at(text)] == found


LONG_JSON = "[" + ",".join(f'{{"n":"row-{number}"}}' for number in range(20_000)) + "]"


@pytest.mark.slow
@pytest.mark.parametrize("long", ["a line of output\n" * 20_000, "word " * 60_000, LONG_JSON, "x" * 300_000])
def test_a_very_long_output_is_read_to_its_end_in_pieces(long: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "make all"}'}}
    output = f"Exit code 2\n{long}\nlib/last/file.py says limit=48211\n"
    found = collect([
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": output},
    ])  # fmt: skip
    assert any("lib/last/file.py" in trace.text for trace in found.files)
    assert any("48211" in trace.text for trace in found.values)
    assert [run.outcome for run in found.commands] == ["failed"]


@pytest.mark.slow
def test_no_search_covers_more_than_a_few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0

    def noting(text: str) -> Any:
        nonlocal longest
        longest = max(longest, len(text))
        return iter(())

    monkeypatch.setattr(gather, "pairs_at", noting)
    collect([{"role": "user", "content": LONG_JSON * 3}])
    assert 0 < longest <= 4 * gather._BATCH
