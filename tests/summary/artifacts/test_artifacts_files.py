"""Files are traced from arguments, patches, commands and outputs, with what happened to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leporello.redact import redact_messages
from leporello.summary.artifacts import Artifacts, collect as collect_redacted
from leporello.summary.artifacts.shell import file_actions


def collect(messages: list[Any]) -> Artifacts:
    """Gather from messages as an engine does."""
    return collect_redacted(redact_messages(messages))


def call(name: str, arguments: dict[str, Any] | str, call_id: str = "c1") -> dict[str, Any]:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": {"name": name, "arguments": raw}}],
    }


def answer(text: str, call_id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def actions(artifacts: Artifacts) -> dict[str, dict[str, int]]:
    return {trace.text: dict(trace.actions) for trace in artifacts.files}


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("read_file", {"path": "src/app.py"}, {"src/app.py": {"read": 1}}),
        ("Read", {"file_path": "/repo/src/app.py", "limit": 20}, {"/repo/src/app.py": {"read": 1}}),
        ("write_file", {"filename": "a b.txt", "content": "x"}, {"a b.txt": {"written": 1}}),
        ("Edit", {"target_file": "lib/x.ex", "old_string": "a", "new_string": "b"}, {"lib/x.ex": {"written": 1}}),
        ("create_file", {"path": "new.md"}, {"new.md": {"created": 1}}),
        ("delete_file", {"path": "old.md"}, {"old.md": {"deleted": 1}}),
        ("move_file", {"old_path": "a.py", "new_path": "b.py"}, {"a.py": {"moved": 1}, "b.py": {"moved": 1}}),
        ("read_many", {"paths": ["a.py", "b.py"]}, {"a.py": {"read": 1}, "b.py": {"read": 1}}),
        ("editor", {"command": "str_replace", "path": "a.py"}, {"a.py": {"written": 1}}),
        (
            "apply_patch",
            {"input": "*** Begin Patch\n*** Update File: a.py\n+x\n*** Add File: b.py\n*** Delete File: c.py"},
            {"a.py": {"written": 1}, "b.py": {"created": 1}, "c.py": {"deleted": 1}},
        ),
        ("patch", {"diff": "--- a/src/x.py\n+++ b/src/x.py\n@@ -1 +1 @@\n-a\n+b"}, {"src/x.py": {"written": 1}}),
        ("写文件", {"path": "文档/报告.md", "content": "内容"}, {"文档/报告.md": {"written": 1}}),
        ("search_flights", {"destination": "SEA", "source": "JFK"}, {}),
    ],
)
def test_a_tool_call_tells_what_happened_to_which_file(
    tool: str, arguments: dict[str, Any], expected: dict[str, dict[str, int]]
) -> None:
    found = actions(collect([call(tool, arguments), answer("done")]))
    assert {path: happened for path, happened in found.items() if happened} == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat src/app.py", {("read", "src/app.py")}),
        ("sed -i 's/a/b/' src/app.py", {("written", "src/app.py")}),
        ("sed -n 1,20p src/app.py", {("read", "src/app.py")}),
        ("rm -rf build/out.txt", {("deleted", "build/out.txt")}),
        ("mv a.py b.py", {("moved", "a.py"), ("written", "b.py")}),
        ("cp a.py b/a.py", {("read", "a.py"), ("written", "b/a.py")}),
        ("touch x.txt && mkdir -p out/dir", {("created", "x.txt"), ("listed", "out/dir")}),
        ("echo hi > log.txt; echo more >> log.txt", {("written", "log.txt")}),
        ("make 2>&1 | tee build.log", {("written", "build.log")}),
        ("cat <<'EOF' > conf.yaml\nrm -rf /etc/passwd\nEOF", {("written", "conf.yaml")}),
        ("git add src/a.py && git commit -m 'rm b.py'", {("", "src/a.py")}),
        ("git rm old.py", {("deleted", "old.py")}),
        ("grep -rn 'foo/bar.py' src/", {("searched", "src/")}),
        ("sudo cat /etc/hosts 2>/dev/null", {("read", "/etc/hosts")}),
        ("echo 'rm important.txt'", set()),
        ("cat $FILE *.py", set()),
    ],
)
def test_a_command_is_read_cautiously(command: str, expected: set[tuple[str, str]]) -> None:
    assert {(action, path) for action, path in file_actions(command) if action or "/" in path} == expected


def test_a_call_that_failed_touched_nothing() -> None:
    found = actions(collect([call("write_file", {"path": "a.py", "content": ""}), answer("Error: permission denied")]))
    assert found == {"a.py": {}}


def test_outputs_name_files_in_tracebacks_hits_and_listings() -> None:
    output = (
        'Traceback (most recent call last):\n  File "/srv/app/main.py", line 3, in f\nKeyError: 1\n'
        "src/util.py:12: def f():\nsrc/x.c:3:9: error: expected ;\n"
    )
    found = actions(collect([answer(output)]))
    assert found["/srv/app/main.py"] == {"in errors": 1}
    assert found["src/util.py"] == {"searched": 1}
    assert "src/x.c" in found


def test_words_that_are_no_paths_are_left_alone() -> None:
    text = (
        "text/html and/or 1/2 n/a I/O application/json https://example.org/a/b.html 2024/05/01 e.g. obj.method() "
        "/api/v1/users"
    )
    assert actions(collect([answer(text)])) == {}


def test_paths_inside_chinese_text_are_found() -> None:
    assert "src/app.py" in actions(collect([{"role": "user", "content": "请修改src/app.py文件里的第3行。"}]))


def test_a_file_knows_where_it_happened() -> None:
    messages = [
        call("read_file", {"path": "a.py"}),
        answer("x"),
        {"role": "user", "content": "now edit a.py"},
        call("edit", {"path": "a.py"}, "c2"),
        answer("ok", "c2"),
    ]
    (trace,) = collect(messages).files
    assert (trace.first, trace.last, dict(trace.actions)) == (0, 3, {"read": 1, "written": 1})


def test_paths_out_of_a_long_listing_matter_less() -> None:
    listing = "\n".join(f"src/gen/file_{i}.py" for i in range(200))
    traces = {trace.text: trace for trace in collect([answer(listing), answer("see src/main.py")]).files}
    assert traces["src/gen/file_7.py"].bulk > traces["src/main.py"].bulk
