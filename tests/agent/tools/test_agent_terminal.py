"""Commands end in time, with all they started; they see no secret, and what they print is safe and short."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event

import pytest
from inline_snapshot import snapshot

from leporello.agent.tools import Action, Toolbox, ToolOutcome, Workspace, can_bound, default_tools, landlock
from leporello.agent.tools.environment import command_environment, own_secrets, without_secrets
from leporello.agent.tools.process import run
from leporello.messages import ToolCall

Call = Callable[..., ToolOutcome]
KEY = "sk-proj-Zq8vLr3TnW5xYb7KcM2dHf9J"


@pytest.mark.slow
def test_output_and_exit_code_are_returned(root: Path, call: Call) -> None:
    (root / "sub").mkdir()
    assert call("terminal", command="echo out; echo err >&2; exit 3").text == snapshot("""\
out
err
[exit code 3]\
""")
    assert call("terminal", command="basename $(pwd)", workdir="sub").text == snapshot("sub\n[exit code 0]")
    assert call("terminal", command="true").text == "[exit code 0]"
    assert call("terminal", command="no-such-program").text.endswith("[exit code 127]")


def test_a_command_has_no_input_and_no_terminal(call: Call) -> None:
    assert call("terminal", command="read line; echo $?; tty; cat /dev/tty", timeout=5).text == snapshot("""\
1
not a tty
cat: /dev/tty: No such device or address
[exit code 1]\
""")


def alive(pid_file: Path) -> bool:
    """Tell whether the process whose number stands in a file still runs."""
    status = Path(f"/proc/{pid_file.read_text().strip()}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


HELD = {
    "in the background": "sleep 77 & echo $! > pid; echo started",
    "in a group of its own": "set -m; sleep 77 & echo $! > pid; echo started",
    "deaf to politeness": "(trap '' TERM HUP; echo $BASHPID > pid; sleep 77; sleep 77) & sleep 0.2; echo started",
    "without the pipe": "sleep 77 >/dev/null 2>&1 & echo $! > pid; echo started",
}


@pytest.mark.slow
@pytest.mark.parametrize("command", HELD.values(), ids=HELD)
def test_nothing_that_a_command_started_is_left(root: Path, call: Call, command: str) -> None:
    answer = call("terminal", command=command, timeout=20).text
    assert answer == "started\n[processes that it left running were ended]\n[exit code 0]"
    assert not alive(root / "pid")


def in_time(command: list[str], folder: Path) -> None:
    run(command, folder=folder, environment={"PATH": os.environ["PATH"]}, seconds=0.5, stop=Event())


def only_itself(command: list[str], folder: Path) -> None:
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.kill()
    process.wait()


def only_its_group(command: list[str], folder: Path) -> None:
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.5)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def assert_ended(root: Path, limit: Callable[[list[str], Path], None]) -> None:
    """A command that holds on in whatever way is gone after its time limit, with all that it started."""
    for name, command in HELD.items():
        limit(["/bin/bash", "-c", f"{command}; sleep 66"], root)
        left = alive(root / "pid")
        if left:
            os.kill(int((root / "pid").read_text()), signal.SIGKILL)
        assert not left, name


@pytest.mark.slow
def test_the_time_limit_ends_all_of_it(root: Path) -> None:
    assert_ended(root, in_time)


@pytest.mark.slow
@pytest.mark.parametrize("defect", [only_itself, only_its_group])
def test_the_check_catches_a_limit_that_leaves_something(root: Path, defect: Callable[[list[str], Path], None]) -> None:
    with pytest.raises(AssertionError, match="in "):
        assert_ended(root, defect)


@pytest.mark.slow
def test_the_time_limit_is_told(call: Call) -> None:
    assert call("terminal", command="echo begun; sleep 66", timeout=1).text == snapshot("""\
begun
[ended early, it took longer than 1 s]
[exit code -15]\
""")


def test_an_interrupt_ends_all_of_it(root: Path) -> None:
    stop = Event()
    ended = []

    def work() -> None:
        command = ["/bin/sh", "-c", "sleep 88 & echo $! > pid.new; mv pid.new pid; wait"]
        ended.append(run(command, folder=root, environment={"PATH": os.environ["PATH"]}, seconds=60, stop=stop))

    thread = threading.Thread(target=work)
    thread.start()
    _wait_for((root / "pid").exists)
    stop.set()
    thread.join(10)
    assert ended[0].ended == "the user interrupted it"
    assert not alive(root / "pid")


def _wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


@pytest.mark.slow
def test_output_without_end_is_cut_and_ended(call: Call) -> None:
    answer = call("terminal", command="yes 'a long line of output that never ends'", timeout=60).text
    assert len(answer) < 35_000
    assert "are left out here; to see it, run it again with head, tail or grep" in answer
    assert "[ended early, it wrote more than 200,000,000 bytes]" in answer


def test_head_and_tail_of_long_output_are_kept(call: Call) -> None:
    answer = call("terminal", command="seq 1 200000").text.splitlines()
    assert answer[:2] == ["1", "2"]
    assert answer[-2:] == ["200000", "[exit code 0]"]


def test_output_is_safe_to_show(call: Call) -> None:
    command = r"""printf '\033]0;owned\007\033[31mred\033[0m\n\x80\xff\x00 50%%\r100%%\n\xe2\x80\xaegnp.exe\n'"""
    assert call("terminal", command=command).text == snapshot("""\
red
100%
<U+202E>gnp.exe
[exit code 0]\
""")


def test_what_is_confirmed_is_what_runs(toolbox: Toolbox) -> None:
    """Escape sequences and carriage returns cannot hide a part of a command from the one who is asked."""
    command = "echo harmless\r\x1b[2Krm -rf .\n\u202emr"
    action = toolbox.prepare(ToolCall(id="c", name="terminal", arguments={"command": command}, raw="{}"))
    assert isinstance(action, Action)
    assert action.asks
    assert (action.title, action.detail) == snapshot(
        ("run: echo harmless<U+000D><U+001B>[2Krm -rf . …", "echo harmless<U+000D><U+001B>[2Krm -rf .\n<U+202E>mr")
    )


def test_wrong_commands_are_answered(call: Call) -> None:
    assert call("terminal", command="a\0b").text == snapshot("Error: a command cannot hold a NUL character")
    assert call("terminal", command="true", workdir="..").failed
    assert call("terminal", command="true", workdir="missing").text == snapshot(
        "Error: workdir: missing is not a folder of the workspace"
    )
    assert call("terminal", command="x" * 30_000).text == snapshot(
        "Error: command has 30,000 characters; at most 20,000 are taken"
    )
    assert call("terminal", command="true", timeout=0).failed


SECRETS = {
    "OPENAI_API_KEY": KEY,
    "ANTHROPIC_API_KEY": "sk-ant-api03-8fJq2LmX7vRt5",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENGbPxRfiCY",
    "GITHUB_TOKEN": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "DATABASE_URL": "postgresql://me:hunter2hunter2@db/x",
    "MY_COMPANY_THING": "nobody-knows-that-this-is-secret",
    "http_proxy": "http://me:hunter2hunter2@proxy:8080",
    "SSH_AUTH_SOCK": "/run/agent-of-keys",
    "LC_PASSWORD": "sk-proj-aaaaaaaaaaaaaaaaaaaaaaaaaaaa",
}


def assert_no_secrets(environment: Mapping[str, str]) -> None:
    told = json.dumps(dict(environment))
    assert [name for name, value in SECRETS.items() if value in told] == []


def test_a_command_sees_no_secret_of_ours() -> None:
    seen = command_environment({"PATH": "/bin", "HOME": "/home/me", "LC_ALL": "C", **SECRETS})
    assert_no_secrets(seen)
    assert {"PATH": "/bin", "HOME": "/home/me", "LC_ALL": "C"}.items() <= seen.items()


def by_name(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.endswith(("KEY", "TOKEN", "SECRET"))}


@pytest.mark.parametrize("defect", [dict, by_name])
def test_the_check_catches_a_weaker_environment(defect: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
    with pytest.raises(AssertionError):
        assert_no_secrets(defect({"PATH": "/bin", **SECRETS}))


def test_a_real_command_sees_none_either(root: Path) -> None:
    environ = {"PATH": os.environ["PATH"], **SECRETS}
    toolbox = Toolbox(default_tools(Workspace(root), environ=environ), environ={})
    action = toolbox.prepare(ToolCall(id="c", name="terminal", arguments={"command": "env"}, raw="{}"))
    assert isinstance(action, Action)
    assert_no_secrets({"output": toolbox.do(action, Event()).text})


def test_a_key_that_a_command_got_hold_of_is_taken_out(call: Call) -> None:
    """From a file, another process or its own memory: our own keys are in no answer, colours in between or not."""
    half = len(KEY) // 2
    answer = call("terminal", command=f"echo {KEY}; printf '{KEY[:half]}\\033[0m{KEY[half:]}\\n'").text
    assert answer == snapshot("""\
[key]
[key]
[exit code 0]\
""")


def test_only_what_is_long_enough_counts_as_a_secret() -> None:
    secrets = own_secrets({"OPENAI_API_KEY": " x ", "API_TOKEN": "abcdefghijk", "PAGE_TOKEN": "nextnextnext", "A": KEY})
    assert secrets == {"abcdefghijk"}
    assert without_secrets("abcdefghijkl", secrets) == "[key]l"


BOUNDED = pytest.mark.skipif(not can_bound(), reason="this system cannot bound commands")
TRESPASSES = {
    "write": "echo owned > ../outside/secret.txt",
    "append": "echo owned >> ../outside/secret.txt",
    "make": "touch ../outside/new",
    "remove": "rm -f ../outside/secret.txt",
    "rename": "mv ../outside/secret.txt ../outside/other",
    "move in": "mv ../outside/secret.txt .",
    "truncate": "truncate -s 0 ../outside/secret.txt",
    "through a link": "ln -s ../outside way; echo owned > way/secret.txt",
    "by a hard link": "ln ../outside/secret.txt mine && echo owned > mine",
    "in the background": "(echo owned > ../outside/secret.txt) & wait",
    "by python": "python3 -c \"open('../outside/secret.txt','w').write('owned')\"",
}


def assert_nothing_changed_outside(root: Path, commands: Toolbox) -> None:
    outside = root.parent / "outside"
    for command in TRESPASSES.values():
        action = commands.prepare(ToolCall(id="c", name="terminal", arguments={"command": command}, raw="{}"))
        assert isinstance(action, Action)
        commands.do(action, Event())
        assert {path.name: path.read_text() for path in outside.iterdir()} == {
            "secret.txt": "the neighbour's secret\n"
        }, command


def commands_in(root: Path, *, unbounded: bool) -> Toolbox:
    """Return commands that may not write to the folder of all temporary files, which the neighbour is in too."""
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(root)}
    return Toolbox(default_tools(Workspace(root), environ=environ, unbounded=unbounded), environ=environ)


@pytest.mark.slow
@BOUNDED
def test_commands_cannot_write_outside_the_workspace(root: Path) -> None:
    assert_nothing_changed_outside(root, commands_in(root, unbounded=False))


def test_the_check_catches_unbounded_commands(root: Path) -> None:
    with pytest.raises(AssertionError):
        assert_nothing_changed_outside(root, commands_in(root, unbounded=True))


@BOUNDED
def test_inside_a_bounded_command_does_what_it_likes(root: Path, call: Call) -> None:
    command = (
        "mkdir -p a/b && echo one > a/f && mv a/f a/b/g && ln -s b/g a/l && ln a/b/g h && rm a/b/g && cat h"
        " && echo t > $(mktemp) && echo n > /dev/null && echo s > /dev/stdout && mkfifo p && truncate -s 1 h && cat h"
    )
    assert call("terminal", command=command).text == "one\ns\no\n[exit code 0]"


@BOUNDED
def test_what_may_be_written_is_said(root: Path) -> None:
    toolbox = commands_in(root, unbounded=False)
    action = toolbox.prepare(ToolCall(id="c", name="terminal", arguments={"command": "touch ../x"}, raw="{}"))
    assert isinstance(action, Action)
    assert toolbox.do(action, Event()).text == snapshot("""\
touch: cannot touch '../x': Permission denied
[commands may write only to the workspace and to temporary and cache folders]
[exit code 1]\
""")


@BOUNDED
def test_further_folders_can_be_opened_to_commands(root: Path) -> None:
    outside = root.parent / "outside"
    tools = default_tools(
        Workspace(root), environ={"PATH": os.environ["PATH"], "TMPDIR": str(root)}, writable=[outside]
    )
    action = tools[0].action({"command": "echo allowed > ../outside/new"})
    assert action.do(Event()) == "[exit code 0]"
    assert (outside / "new").read_text() == "allowed\n"


@BOUNDED
def test_the_memory_of_the_agent_is_out_of_reach(root: Path) -> None:
    command = {"command": "head -c1 /proc/$PPID/mem"}
    bounded, unbounded = (
        default_tools(Workspace(root), environ={"PATH": os.environ["PATH"]}, unbounded=free)[0]
        for free in (False, True)
    )
    if "Permission denied" in unbounded.action(command).do(Event()):
        pytest.skip("this system lets nobody read the memory of others")
    assert "Permission denied" in bounded.action(command).do(Event())


@pytest.mark.skipif(landlock.version() < 6, reason="signals are bounded from Linux 6.12 on")
def test_a_command_cannot_end_the_agent(call: Call) -> None:
    answer = call("terminal", command="kill -0 $PPID; kill -0 1; sleep 9 & kill $! && echo own").text
    assert answer.count("Operation not permitted") == 2
    assert "own" in answer
