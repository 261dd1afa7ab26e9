"""What the user agrees to is what runs, and a command finds no key of ours."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, strategies as st

from leporello.agent.tools import Workspace, default_tools
from leporello.agent.tools.tool import Action, simple_tool
from leporello.messages.visible import read_back, spelled_out, visible

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Unicode's Default_Ignorable_Code_Point, and characters that fonts draw as nothing.
IGNORABLE = [
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
]  # fmt: skip
BLANK = [0x2800, 0x13441, 0x13442, 0x16FE4, 0x1D159]
UNSEEN = {chr(code) for first, last in IGNORABLE for code in range(first, last + 1)} | set(map(chr, BLANK))


def is_unseen(character: str) -> bool:
    """Tell whether a character is not plainly seen, or obeyed instead of shown."""
    return character in UNSEEN or (character not in " \n" and unicodedata.category(character)[0] in "CZ")


def assert_shown(show: Callable[[str], str], command: str) -> None:
    shown = show(command)
    assert [f"U+{ord(character):04X}" for character in shown if is_unseen(character)] == []
    assert read_back(shown) == command


@pytest.mark.slow
def test_no_character_of_unicode_hides_in_what_is_shown() -> None:
    for plane in range(0, sys.maxunicode + 1, 0x1000):
        assert_shown(spelled_out, "".join(f"a{chr(code)}b" for code in range(plane, plane + 0x1000)))


@given(
    st.text(
        st.one_of(st.characters(codec=None), st.sampled_from(sorted(UNSEEN)), st.sampled_from(list("<U+003C> \n\t\r")))
    )
)
@example("rm <U+202E> x")
@example("echo safe\r rm -r x")
@example("ends with spaces  \n and a tab\t")
def test_what_is_shown_can_be_read_back_as_the_very_same_command(command: str) -> None:
    assert_shown(spelled_out, command)
    assert not any(line.endswith(" ") for line in spelled_out(command).split("\n"))


DEFECTS: dict[str, Callable[[str], str]] = {
    "nothing is done": str,
    "only what a terminal obeys": visible,
    "compatibility forms": lambda text: unicodedata.normalize("NFKC", spelled_out(text)),
    "unseen characters are left out": lambda text: "".join(c for c in text if not is_unseen(c)),
    "what looks written out is not": lambda text: "".join(f"<U+{ord(c):04X}>" if is_unseen(c) else c for c in text),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_check_catches_a_weaker_showing(defect: str) -> None:
    with pytest.raises(AssertionError):
        assert_shown(DEFECTS[defect], "ｅcho a\u00ad\u034f\u3164\u115f\u2800b <U+0041>\r")


def test_ordinary_commands_are_shown_as_they_are() -> None:
    for command in ("ls -la | grep 'a b'", "printf 'Grüße, 汉字 🎉\\n'\nexit 1", "echo '<U+XYZ> <b>'"):
        assert spelled_out(command) == command


def terminal_action(root: Path, command: str) -> Action:
    tools = {tool.name: tool for tool in default_tools(Workspace(root))}
    return tools["terminal"].action({"command": command})


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["\u00ad", "\u034f\u3164\u115f", "\u2800", "\r", "\u202e", "\u00a0", "\u200d", " \t "])
def test_the_command_that_is_shown_is_byte_for_byte_the_one_that_runs(root: Path, odd: str) -> None:
    command = f"od -An -v -tx1 /proc/$$/cmdline # {odd}{odd}.\ntrue{' '}"
    action = terminal_action(root, command)
    ran = bytes.fromhex("".join(action.do(threading.Event()).split("[exit")[0].split()))
    assert read_back(action.detail).encode() in ran.split(b"\0")
    assert not any(map(is_unseen, action.detail + action.title))


def test_a_tool_of_ones_own_shows_its_arguments_in_the_same_way() -> None:
    tool = simple_tool("send", "Send.", lambda to: to, {"type": "object", "properties": {"to": {"type": "string"}}})
    action = tool.action({"to": "bob\u3164\u2800"})
    assert (action.title, action.detail) == ("send(to='bob<U+3164><U+2800>')", "to='bob<U+3164><U+2800>'")


KEY = "sk-proj-Zq8vLr3TnW5xYb7KcM2dHf9J"
LOOK = "cat /proc/$PPID/environ /proc/{pid}/environ 2>&1 | tr '\\0' '\\n' | base64 -w0"
PROGRAM = """
import base64, os, sys, threading
from pathlib import Path
from leporello.agent.tools import Workspace, default_tools
from leporello.agent.tools.environment import blank_environment
{before}
workspace, unbounded = Workspace(Path(sys.argv[1])), sys.argv[2] == "unbounded"
tools = {{tool.name: tool for tool in default_tools(workspace, unbounded=unbounded)}}
command = sys.argv[3].format(pid=os.getpid())
said = tools["terminal"].action({{"command": command}}).do(threading.Event()).split("\\n")[0]
assert os.environ["OPENAI_API_KEY"]
print(base64.b64decode(said).decode())
"""


def seen_by_a_command(root: Path, *, bounds: str, before: str) -> str:
    """Return what a command sees of the environment of the process that started it."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before), str(root), bounds, LOOK],
        env={**os.environ, "OPENAI_API_KEY": KEY, "MY_PASSWORD": KEY},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize("bounds", ["bounded", "unbounded"])
def test_a_command_finds_no_key_in_proc(root: Path, bounds: str) -> None:
    """With the environment blanked, as the command line does it, not even root finds it there."""
    assert KEY not in seen_by_a_command(root, bounds=bounds, before="blank_environment()")


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() == 0, reason="root may read every process")
def test_a_command_may_not_read_the_process_of_an_agent(root: Path) -> None:
    assert "Permission denied" in seen_by_a_command(root, bounds="unbounded", before="")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_the_look_into_proc_finds_a_key_that_nothing_hides(root: Path) -> None:
    careless = "import leporello.agent.tools.terminal as t; t.deny_inspection = lambda: None"
    assert KEY in seen_by_a_command(root, bounds="unbounded", before=careless)
