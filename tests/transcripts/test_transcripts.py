"""Every format becomes the conversation that was held; what cannot be read is left out and named."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.fixtures.calls import MOST_GROWTH, calls_made

from leporello.errors import TranscriptError
from leporello.messages import Message, role_of, text_of, tool_calls_of, violations
from leporello.messages.as_json import MAX_DEPTH
from leporello.session.conversation import checked
from leporello.store import open_store
from leporello.transcripts import Skipped, Transcript, read_transcripts, transcript_files

if TYPE_CHECKING:
    from collections.abc import Iterable

CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "src/port.py"}'}}
OPENAI: list[Message] = [
    {"role": "system", "content": "You work on a port's software."},
    {"role": "user", "content": "What is in src/port.py?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "def berth(): ..."},
    {"role": "assistant", "content": "A function, berth()."},
]
ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": "What is in src/port.py?"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "call_1", "name": "read", "input": {"path": "src/port.py"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "def berth(): ..."}]},
    {"role": "assistant", "content": [{"type": "text", "text": "A function, berth()."}]},
]


def lines(path: Path, values: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values), "utf-8")
    return path


def record(number: int, kind: str, content: Any, *, message_id: str = "", **fields: Any) -> dict[str, Any]:
    """Return a record of a Claude Code log."""
    message = {"role": kind, "content": content}
    if message_id:
        message |= {"id": message_id, "model": "claude-sonnet-5"}
    return {
        "type": kind,
        "uuid": f"u{number}",
        "sessionId": "port",
        "isSidechain": False,
        "timestamp": f"2026-03-01T10:00:{number:02d}.000Z",
        "cwd": "/home/ada/port",
        "message": message,
        **fields,
    }


def use(number: int, path: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"file_path": path}}]


def result(number: int, text: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}]


def claude_code_session() -> list[dict[str, Any]]:
    """Return a log with parallel calls whose results stand between them, a compaction, and records to leave out."""
    return [
        {"type": "file-history-snapshot", "messageId": "x"},
        record(1, "user", "Look at both files."),
        record(2, "assistant", [{"type": "text", "text": "\n\n"}], message_id="msg_1"),
        record(3, "assistant", use(1, "src/a.py"), message_id="msg_1"),
        record(4, "user", result(1, "alpha")),
        record(5, "assistant", use(2, "src/b.py"), message_id="msg_1"),
        record(6, "user", result(2, "beta")),
        {"type": "progress", "uuid": "p1", "data": {}},
        record(7, "assistant", [{"type": "text", "text": "Both are short."}], message_id="msg_2"),
        {
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": "b1",
            "compactMetadata": {"trigger": "auto", "preTokens": 167_000},
        },
        record(8, "user", "This session is being continued. Summary: both files are short.", isCompactSummary=True),
        record(9, "user", "Go on."),
        record(10, "assistant", [{"type": "text", "text": "API Error"}], message_id="e", isApiErrorMessage=True),
        record(11, "assistant", [{"type": "text", "text": "Done."}], message_id="msg_3"),
        record(11, "assistant", [{"type": "text", "text": "Done."}], message_id="msg_3"),
    ]


def codex_session() -> list[dict[str, Any]]:
    def item(second: int, payload: dict[str, Any], kind: str = "response_item") -> dict[str, Any]:
        return {"timestamp": f"2026-03-01T10:00:{second:02d}.000Z", "type": kind, "payload": payload}

    def said(role: str, text: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    return [
        item(0, {"id": "s1", "cwd": "/home/ada", "instructions": "Be brief."}, "session_meta"),
        item(1, {"model": "gpt-5.5"}, "turn_context"),
        item(2, said("user", "List the files.")),
        item(3, {"type": "user_message", "message": "List the files."}, "event_msg"),
        item(4, {"type": "reasoning", "encrypted_content": "..."}),
        item(5, said("assistant", "I list them.")),
        item(6, {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c1"}),
        item(7, {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin", "call_id": "c2"}),
        item(8, {"type": "function_call_output", "call_id": "c1", "output": {"content": "a.py", "success": True}}),
        item(9, {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"}),
        item(9, said("developer", "The sandbox is read-only now.")),
        item(10, {"message": "Files were listed."}, "compacted"),
        item(11, said("assistant", "There is a.py.")),
    ]


def chatgpt_conversation() -> dict[str, Any]:
    """Return a conversation with a branch that was left, a tool, and nodes without messages."""

    def node(id_: str, parent: str | None, *children: str, **message: Any) -> dict[str, Any]:
        return {"id": id_, "parent": parent, "children": list(children), "message": message or None}

    def text(role: str, *parts: str, name: str | None = None) -> dict[str, Any]:
        content = {"content_type": "text", "parts": list(parts)}
        return {"author": {"role": role, "name": name}, "content": content, "create_time": 1_772_000_000.5}

    return {
        "title": "Tides",
        "conversation_id": "c-7",
        "current_node": "answer",
        "mapping": {
            "root": node("root", None, "ask"),
            "ask": node("ask", "root", "old", "call", **text("user", "When is high tide?")),
            "old": node("old", "ask", **text("assistant", "I do not know.")),
            "call": node("call", "ask", "tool", id="call", recipient="web", **text("assistant", "high tide today")),
            "tool": node("tool", "call", "answer", **text("tool", "14:32", name="web")),
            "answer": node("answer", "tool", recipient="all", **text("assistant", "At 14:32.")),
        },
    }


def read(path: Path) -> list[Transcript]:
    return list(read_transcripts(path))


def only(path: Path) -> Transcript:
    (transcript,) = read(path)
    return transcript


def said(transcript: Transcript) -> list[tuple[str, str]]:
    return [(role_of(message), text_of(message)) for message in transcript.messages]


def skipped_in(path: Path) -> tuple[list[Transcript], list[Skipped]]:
    skipped: list[Skipped] = []
    return list(read_transcripts(path, on_skip=skipped.append)), skipped


def test_messages_as_json_lines_are_one_conversation(tmp_path: Path) -> None:
    transcript = only(lines(tmp_path / "talk.jsonl", OPENAI))
    assert transcript.messages == OPENAI
    assert (transcript.name, transcript.format) == ("talk", "openai")


@pytest.mark.parametrize("shape", ["array", "object", "array of objects", "array of arrays"])
def test_a_json_file_in_every_shape(tmp_path: Path, shape: str) -> None:
    conversation: Any = {"id": "one", "messages": OPENAI}
    value = {
        "array": OPENAI,
        "object": conversation,
        "array of objects": [conversation],
        "array of arrays": [OPENAI],
    }[shape]
    for indent in (None, 2):
        file = tmp_path / f"talk{indent}.json"
        file.write_text(json.dumps(value, indent=indent), "utf-8")
        assert only(file).messages == OPENAI


def test_a_conversation_per_line(tmp_path: Path) -> None:
    values = [{"id": f"t{n}", "messages": OPENAI, "model": "gpt-5.5"} for n in range(3)]
    found = read(lines(tmp_path / "talks.jsonl", values))
    assert [(one.name, one.model) for one in found] == [("t0", "gpt-5.5"), ("t1", "gpt-5.5"), ("t2", "gpt-5.5")]
    assert all(one.messages == OPENAI for one in found)


def test_anthropic_messages_become_calls_and_results(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", [{"system": "Be brief.", "messages": ANTHROPIC}])
    transcript = only(file)
    assert transcript.format == "anthropic"
    assert [role_of(one) for one in transcript.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert tool_calls_of(transcript.messages[2])[0].arguments == {"path": "src/port.py"}
    assert violations(transcript.messages, dialect="openai") == []


def test_an_answer_in_several_records_is_one_message(tmp_path: Path) -> None:
    blocks = ANTHROPIC[1]["content"]
    parts = [{"role": "assistant", "content": [block], "id": "msg_1", "ts": "2026-03-01T10:00:00Z"} for block in blocks]
    file = lines(tmp_path / "a.jsonl", [{"messages": [ANTHROPIC[0], *parts, ANTHROPIC[2], ANTHROPIC[3]]}])
    messages = only(file).messages
    assert [role_of(one) for one in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["timestamp"] == "2026-03-01T10:00:00Z"
    assert text_of(messages[1]) == "I look."


def test_claude_code_parallel_calls_keep_their_results_and_the_compaction_its_place(tmp_path: Path) -> None:
    transcript = only(lines(tmp_path / "port.jsonl", claude_code_session()))
    assert said(transcript) == [
        ("user", "Look at both files."),
        ("assistant", ""),
        ("tool", "alpha"),
        ("tool", "beta"),
        ("assistant", "Both are short."),
        ("user", "Go on."),
        ("assistant", "Done."),
    ]
    assert [call.arguments["file_path"] for call in tool_calls_of(transcript.messages[1])] == ["src/a.py", "src/b.py"]
    (compaction,) = transcript.compactions
    assert (compaction.at, compaction.tokens_before, compaction.trigger) == (5, 167_000, "auto")
    assert "both files are short" in compaction.summary
    assert (transcript.model, transcript.meta["cwd"]) == ("claude-sonnet-5", "/home/ada/port")
    assert violations(transcript.messages, dialect="anthropic") == []


def test_claude_code_sub_agents_come_with_their_session_once(tmp_path: Path) -> None:
    session = lines(tmp_path / "port.jsonl", claude_code_session())
    records = [{**one, "isSidechain": True, "agentId": "a7"} for one in claude_code_session() if "message" in one]
    lines(tmp_path / "port" / "subagents" / "agent-a7.jsonl", records)
    expected = [("port", ""), ("agent-a7", "port")]
    assert [(one.name, one.parent) for one in read(session)] == expected
    assert [(one.name, one.parent) for one in read(tmp_path)] == expected
    assert transcript_files(tmp_path) == [session]


def test_claude_code_sub_agents_in_the_same_file_are_conversations_of_their_own(tmp_path: Path) -> None:
    agent: dict[str, Any] = {"isSidechain": True, "agentId": "a7"}
    answer = [{"type": "text", "text": "In tests/."}]
    side = [
        record(40, "user", "Find the tests.", **agent),
        record(41, "assistant", answer, message_id="s", **agent),
    ]
    found = read(lines(tmp_path / "port.jsonl", [*claude_code_session(), *side]))
    assert [(one.name, one.parent, len(one.messages)) for one in found] == [("port", "", 7), ("port/a7", "port", 2)]


def test_codex_items_are_read_and_events_are_not(tmp_path: Path) -> None:
    transcript = only(lines(tmp_path / "rollout-1.jsonl", codex_session()))
    assert said(transcript) == [
        ("system", "Be brief."),
        ("user", "List the files."),
        ("assistant", "I list them."),
        ("tool", "a.py"),
        ("tool", "ok"),
        ("system", "The sandbox is read-only now."),
        ("assistant", "There is a.py."),
    ]
    assert [call.name for call in tool_calls_of(transcript.messages[2])] == ["shell", "apply_patch"]
    assert (transcript.compactions[0].at, transcript.compactions[0].summary) == (6, "Files were listed.")
    assert transcript.model == "gpt-5.5"


def test_chatgpt_the_branch_that_was_shown_last(tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([chatgpt_conversation()]), "utf-8")
    transcript = only(file)
    assert said(transcript) == [
        ("user", "When is high tide?"),
        ("assistant", ""),
        ("tool", "14:32"),
        ("assistant", "At 14:32."),
    ]
    assert (transcript.name, transcript.meta["title"]) == ("c-7", "Tides")
    assert violations(transcript.messages, dialect="openai") == []


def test_a_swe_agent_trajectory_is_its_history(tmp_path: Path) -> None:
    history = [
        {"role": "user", "content": "Fix it.", "agent": "main", "message_type": "observation"},
        {"role": "assistant", "content": "I look.", "thought": "…", "action": "ls", "tool_calls": [CALL]},
        {"role": "tool", "content": "a.py", "tool_call_ids": ["call_1"], "message_type": "observation"},
    ]
    file = tmp_path / "port-1.traj"
    file.write_text(json.dumps({"trajectory": [{"action": "ls"}], "history": history, "info": {}}), "utf-8")
    transcript = only(file)
    assert transcript.format == "swe-agent"
    assert transcript.messages[2] == {"role": "tool", "content": "a.py", "tool_call_id": "call_1"}
    assert violations(transcript.messages, dialect="openai") == []


def test_our_own_export_comes_back(tmp_path: Path) -> None:
    store = open_store(":memory:")
    store.append("port", OPENAI)
    file = tmp_path / "bundle.jsonl"
    file.write_text("".join(f"{line}\n" for line in (*store.export("port"), *store.export("port"))), "utf-8")
    found = read(file)
    assert [one.name for one in found] == ["port", "port"]
    without_times = [{key: value for key, value in m.items() if key != "timestamp"} for m in found[0].messages]
    assert without_times == OPENAI


def test_a_broken_line_is_skipped_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    texts = [json.dumps(message) for message in OPENAI]
    file.write_text("\n".join([*texts[:2], '{"role": "assist', "", "[1, 2]", *texts[2:]]), "utf-8")
    (transcript,), skipped = skipped_in(file)
    assert transcript.messages == OPENAI
    assert [one.line for one in skipped] == [3, 5]
    assert str(skipped[0]).startswith(f"{file}, line 3: not JSON")


def test_what_stands_before_the_break_of_an_array_is_read(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    whole = json.dumps([{"messages": OPENAI}] * 3)
    file.write_text(whole[: len(whole) * 5 // 6], "utf-8")
    found, skipped = skipped_in(file)
    assert len(found) == 2
    assert "behind item 2" in skipped[0].reason


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "nothing in it"),
        (b"[]", "nothing in it"),
        (b"\x00\x01\x02 binary", "neither JSON nor JSON lines"),
        (b"<html></html>", "neither JSON nor JSON lines"),
        (b'{"messages": [', "not JSON"),
        (b'{"name": "left-pad", "version": "1.0.0"}', "no known format"),
        (b'[{"a": 1}, {"b": 2}]', "no known format"),
        (b"\x28\xb5\x2f\xfd....", "zstd"),
    ],
)
def test_a_foreign_or_broken_file_is_a_clear_error(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(content)
    with pytest.raises(TranscriptError, match=says) as caught:
        read(file)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match="cannot be read"):
        read(tmp_path / "nowhere.jsonl")


def test_a_folder_leaves_foreign_files_out_and_names_them(tmp_path: Path) -> None:
    lines(tmp_path / "talk.jsonl", OPENAI)
    (tmp_path / "package.json").write_text('{"name": "left-pad"}', "utf-8")
    found, skipped = skipped_in(tmp_path)
    assert [one.name for one in found] == ["talk"]
    assert [Path(one.file).name for one in skipped] == ["package.json"]


def test_compressed_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    text = "".join(f"{json.dumps(message)}\n" for message in OPENAI)
    packed = tmp_path / "talk.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    assert only(packed).messages == OPENAI
    array = tmp_path / "talk.json"
    array.write_bytes(b"\xef\xbb\xbf" + json.dumps(OPENAI).encode())
    assert only(array).messages == OPENAI


SLACK = 8_000_000
"""Bytes by which a process may be larger after a file of any size; a conversation has 100 KB."""

_PEAK = """
# Of this process alone: ru_maxrss begins with what the process had from which it was started.
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""

_READER = """
import re, sys
from leporello.transcripts import read_transcripts
print(sum(len(one.messages) for one in read_transcripts(sys.argv[1])))
"""

_GREEDY = """
import re, sys
from leporello.transcripts import read_transcripts
print(sum(len(one.messages) for one in list(read_transcripts(sys.argv[1]))))
"""


def write_array(path: Path, conversations: int) -> None:
    """Write an array of conversations of about 100 KB each, without holding it."""
    words = "the berth of the crane is free at the next tide " * 20
    messages = [{"role": role, "content": words} for _ in range(50) for role in ("user", "assistant")]
    text = json.dumps({"messages": messages})
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number in range(conversations):
            file.write("," * bool(number) + text)
        file.write("]")


def peak(path: Path, reader: str = _READER) -> tuple[int, int]:
    """Return how many messages a process of its own read, and the most memory that it had, in bytes."""
    done = subprocess.run([sys.executable, "-c", reader + _PEAK, path], capture_output=True, text=True, check=True)
    messages, kilobytes = map(int, re.findall(r"\d+", done.stdout))
    return messages, kilobytes * 1024


@pytest.mark.slow
def test_a_huge_array_takes_the_memory_of_one_conversation(tmp_path: Path) -> None:
    count = 10_000 if os.environ.get("LEPORELLO_SOAK") else 500
    small, huge = tmp_path / "small.json", tmp_path / "huge.json"
    write_array(small, 2)
    write_array(huge, count)
    _, little = peak(small)
    messages, much = peak(huge)
    assert messages == 100 * count
    assert huge.stat().st_size > 90_000 * count
    assert much - little < SLACK, "the file is held in memory"


@pytest.mark.slow
def test_the_memory_check_finds_a_reader_that_holds_everything(tmp_path: Path) -> None:
    small, huge = tmp_path / "small.json", tmp_path / "huge.json"
    write_array(small, 2)
    write_array(huge, 500)
    assert peak(huge, _GREEDY)[1] - peak(small, _GREEDY)[1] > SLACK


EXPORTED = [
    {"leporello": 1, "conversation": "port", "meta": {}},
    {"seq": 1, "place": 1.0, "system": True, "time": 1.0, "message": OPENAI[0]},
    *({"seq": 2 + at, "place": 2.0 + at, "time": 2.0 + at, "message": one} for at, one in enumerate(OPENAI[1:])),
    {"end": True},
]
TRAJECTORY = {
    "trajectory": [{"action": "ls", "observation": "a.py"}],
    "history": [
        {"role": "system", "content": "You repair software.", "agent": "primary"},
        {"role": "user", "content": "Repair it.", "message_type": "observation"},
        {"role": "assistant", "content": "I look.", "thought": "I look.", "action": "ls", "tool_calls": None},
        {"role": "tool", "content": "a.py", "tool_call_ids": ["c1"]},
        {"role": "assistant", "content": "Done."},
    ],
    "info": {},
}
FORMATS: dict[str, Any] = {
    "openai.json": {"messages": OPENAI, "tools": [{"type": "function", "function": {"name": "read"}}], "model": "m"},
    "openai.jsonl": OPENAI,
    "anthropic.json": {"system": [{"type": "text", "text": "You work."}], "messages": ANTHROPIC},
    "claude-code.jsonl": claude_code_session(),
    "codex.jsonl": codex_session(),
    "chatgpt.json": [chatgpt_conversation()],
    "swe-agent.traj": TRAJECTORY,
    "leporello.jsonl": EXPORTED,
}
LEFT_OUT = object()
ODD: tuple[Any, ...] = (
    LEFT_OUT,
    None,
    True,
    0,
    -1.5,
    10**30,
    1e400,
    "",
    "\ud800",
    [],
    [None],
    [[]],
    {},
    {"type": []},
    [{"type": "text"}],
)


def places_in(value: Any, place: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
    """Yield the way to every value in a value."""
    found = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in found:
        yield (*place, key)
        yield from places_in(item, (*place, key))


def changed(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """Return a copy with another value at a place, or with none there."""
    copied = json.loads(json.dumps(value))
    holder = copied
    for key in place[:-1]:
        holder = holder[key]
    if new is LEFT_OUT:
        del holder[place[-1]]
    else:
        holder[place[-1]] = new
    return copied


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_whatever_stands_anywhere_in_a_file_is_read_or_told(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    read, skipped = 0, list[Skipped]()
    for place in places_in(FORMATS[name]):
        for odd in ODD:
            value = changed(FORMATS[name], place, odd)
            file.write_text("\n".join(map(json.dumps, value)) if ".jsonl" in name else json.dumps(value), "utf-8")
            try:
                found = list(read_transcripts(file, on_skip=skipped.append))
            except TranscriptError:
                continue
            read += 1
            for message in (message for one in found for message in one.messages):
                checked(message)
                json.dumps(message, allow_nan=False)
    assert read > 100
    assert all(skip.file == str(file) and skip.reason for skip in skipped)


def test_messages_that_no_host_takes_are_left_out_and_told(tmp_path: Path) -> None:
    odd = [{"role": "narrator", "content": "Night fell."}, {"role": "user", "content": "x", "cost": float("inf")}]
    file = lines(tmp_path / "odd.jsonl", [{"id": "port", "messages": [*OPENAI[:2], *odd, *OPENAI[2:]]}])
    skipped: list[Skipped] = []
    (found,) = read_transcripts(file, on_skip=skipped.append)
    assert found.messages == OPENAI
    assert [skip.reason for skip in skipped] == [
        "1 message of port: 'narrator' is no role",
        "1 message of port: inf is not JSON",
    ]


@pytest.mark.parametrize("depth", [MAX_DEPTH, 3_000, 50_000])
@pytest.mark.parametrize("name", ["deep.json", "deep.jsonl"])
def test_a_message_that_is_nested_too_deeply_is_left_out_and_told(tmp_path: Path, name: str, depth: int) -> None:
    file, odd = tmp_path / name, {"role": "user", "content": "x", "extra": "DEEP"}
    written = json.dumps({"id": "port", "messages": [*OPENAI[:2], odd, *OPENAI[2:]]})
    file.write_text(written.replace('"DEEP"', "[" * depth + "]" * depth), "utf-8")
    skipped: list[Skipped] = []
    (found,) = read_transcripts(file, on_skip=skipped.append)
    assert found.messages == OPENAI
    assert [skip.reason for skip in skipped] == ["1 message of port: nested more than 200 levels deep"]


def test_calls_of_functions_are_calls_of_tools(tmp_path: Path) -> None:
    call = {"name": "read", "arguments": '{"path": "src/port.py"}'}
    file = lines(
        tmp_path / "old.jsonl",
        [
            {"role": "user", "content": "What is in it?"},
            {"role": "assistant", "content": None, "function_call": call},
            {"role": "function", "name": "read", "content": "def berth(): ..."},
            {"role": "assistant", "content": "A function."},
        ],
    )
    (found,) = read_transcripts(file)
    assert [one.name for one in tool_calls_of(found.messages[1])] == ["read"]
    assert violations(found.messages, dialect="openai") == []


def test_results_without_a_call_cost_no_more_than_others(tmp_path: Path) -> None:
    def reading(count: int) -> int:
        said = [{"role": "function", "name": "read", "content": "def berth(): ..."}] * count
        file = lines(tmp_path / f"{count}.jsonl", [{"role": "user", "content": "What is in it?"}, *said])
        return calls_made(lambda: list(read_transcripts(file)))

    assert reading(400) < MOST_GROWTH * reading(100)
