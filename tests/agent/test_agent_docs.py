"""The pages about the agent say what is true, and their code runs; so does the example."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leporello.agent.tools import Workspace, default_tools

ROOT = Path(__file__).parents[2]
HOW_TO = (ROOT / "docs" / "how-to" / "use-the-agent.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "agent-tools.md").read_text("utf-8")


@pytest.mark.slow
def test_the_code_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", HOW_TO, re.DOTALL | re.MULTILINE)
    told: list[str] = []
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "use-the-agent.md", "exec"), names)  # noqa: S102 - the page's own code
        told.append(capsys.readouterr().out)
    names["server"].close()
    made, *told = told
    assert made == ""
    assert told[0] == "There are two.[done]\n"
    assert told[1].startswith("write hello.txt (1 line, new)\nhello\n")
    assert (tmp_path / "project" / "hello.txt").read_text() == "hello\n"
    assert "It rains in Wien." in str(names["server"].requests)
    assert told[3] == "interrupted\n"
    assert names["answer"] == "There are two."


@pytest.mark.parametrize("tool", default_tools(Workspace("/")), ids=lambda tool: tool.name)
def test_the_tables_name_every_argument(tool: Any) -> None:
    section = REFERENCE.partition(f"\n## {tool.name}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|", section, re.MULTILINE)
    rules = tool.parameters["properties"]
    assert [name for name, _, _ in rows] == list(rules)
    for name, kind, default in rows:
        told = {"True": "true", "False": "false", "None": ""}.get(str(rules[name].get("default")))
        expected = str(rules[name].get("default")) if told is None else told
        assert default.strip("` ") == ("required" if name in tool.parameters["required"] else expected)
        for bound in ("minimum", "maximum"):
            if bound in rules[name]:
                assert f"{rules[name][bound]:,}" in kind


def test_the_answers_of_the_page_are_real(root: Path, call: Any) -> None:
    (root / "app.py").write_text("import os\nimport sys\nprint(1)\n")
    shown = re.findall(r"^```(?:text|console)\n(.*?)^```", REFERENCE, re.DOTALL | re.MULTILINE)
    (command,) = re.findall(r"Of `(.*)`:$", REFERENCE, re.MULTILINE)
    assert call("terminal", command=command).text == shown[0].strip()
    assert call("read_file", path="app.py", limit=2).text == shown[1].strip()
    assert call("search_files", pattern="import").text == shown[2].strip()


@pytest.mark.slow
def test_the_example_runs() -> None:
    example = ROOT / "examples" / "agent_with_own_tool.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done after 6 requests\nLIMIT = 30\n")
    assert "because the user refused it. They said: run nothing but the tests" in done.stdout
