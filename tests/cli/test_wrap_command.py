"""`leporello wrap`: a program runs behind a gateway of its own, and what it used is told to the cent."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from leporello.cli.wrap import _report
from leporello.gateway import background
from leporello.gateway.background import BackgroundGateway
from leporello.prices import cost
from leporello.store import open_store
from leporello.testing.model_server import ModelServer
from leporello.testing.model_server.cache import PromptCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.cli import Leporello, Outcome

    from leporello.engine import Usage
    from leporello.testing.model_server import ReceivedRequest

pytestmark = pytest.mark.slow

MODELS = {"openai": "gpt-4o-mini", "anthropic": "claude-sonnet-5"}
AGENT = """
import sys

kind, model, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "openai":
    import openai
    client = openai.OpenAI(max_retries=0)
else:
    import anthropic
    client = anthropic.Anthropic(max_retries=0)
talk = []
for turn in range(turns):
    talk.append({"role": "user", "content": f"question {turn}: " + "the crane stands at berth seven and waits " * 50})
    if kind == "openai":
        text = client.chat.completions.create(model=model, messages=talk).choices[0].message.content
    else:
        with client.messages.stream(model=model, max_tokens=400, system="Be brief.", messages=talk) as answer:
            text = answer.get_final_text()
    talk.append({"role": "assistant", "content": text})
sys.exit(5)
"""
REFUSED = """
import openai, sys

try:
    openai.OpenAI(max_retries=0).chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
except openai.AuthenticationError as error:
    sys.exit(40 + ("client's own key" in str(error)))
"""


class Ledger:
    """A provider's own count: what it reported of every request, and what that costs."""

    def __init__(self) -> None:
        self._cache = PromptCache()
        self.entries: list[tuple[str, Usage]] = []

    def __call__(self, request: ReceivedRequest, usage: Usage) -> Usage:
        reported = self._cache(request, usage)
        self.entries.append((request.model, reported))
        return reported

    @property
    def dollars(self) -> float:
        return sum(cost(usage, model) or 0.0 for model, usage in self.entries)

    def tokens(self, key: str) -> int:
        return sum(int(usage[key]) for _, usage in self.entries)  # type: ignore[literal-required, misc]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def provider(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModelServer]:
    """A provider that takes the user's own key alone, where the environment leads already."""
    with ModelServer(usage=ledger, accepts_key=lambda key: key == "sk-of-the-user") as server:
        for name in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{name}_API_KEY", "sk-of-the-user")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_url)
        monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path / "home"))
        (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
        yield server


@pytest.fixture
def run(leporello: Leporello, tmp_path: Path, provider: ModelServer) -> Callable[..., Outcome]:
    """Run the agent behind `wrap`, in this process."""

    def wrap(kind: str, turns: int, *options: str) -> Outcome:
        agent = [sys.executable, str(tmp_path / "agent.py"), kind, MODELS[kind], str(turns)]
        return leporello("wrap", *options, "--", *agent)

    return wrap


def told(outcome: Outcome) -> dict[str, Any]:
    """Return the figures of a report."""
    read, cached, written = re.findall(
        r"tokens +([\d,]+) read \((\d+)% from the cache\), ([\d,]+) written", outcome.err
    )[0]
    return {
        "requests": int(re.findall(r"requests +([\d,]+)", outcome.err)[0].replace(",", "")),
        "folds": int(re.findall(r"requests .*, ([\d,]+) fold", outcome.err)[0]),
        "read": int(read.replace(",", "")),
        "cached": int(cached) / 100,
        "written": int(written.replace(",", "")),
        "dollars": float(re.findall(r"cost +\$([\d.,]+)", outcome.err)[0]),
        "conversations": re.findall(r"conversation +(\S+)", outcome.err),
    }


@pytest.mark.parametrize("kind", MODELS)
def test_the_figures_are_those_of_the_providers_own_count(
    kind: str, run: Callable[..., Outcome], ledger: Ledger, leporello: Leporello
) -> None:
    outcome = run(kind, 4)
    figures = told(outcome)
    assert (outcome.code, figures["requests"], figures["folds"]) == (5, 4, 0)
    assert figures["read"] == ledger.tokens("prompt_tokens")
    assert figures["written"] == ledger.tokens("completion_tokens")
    assert figures["cached"] == pytest.approx(
        ledger.tokens("cache_read_tokens") / ledger.tokens("prompt_tokens"), abs=0.005
    )
    assert figures["dollars"] == pytest.approx(ledger.dollars, abs=0.00005)
    (name,) = figures["conversations"]
    shown = re.findall(r"see it +leporello (.*)", outcome.err)[0].split()
    assert shown == ["sessions", "show", name]
    assert "question 3" in leporello(*shown).out


@pytest.mark.parametrize("kind", MODELS)
def test_a_folded_session_counts_its_summaries_too(
    kind: str, run: Callable[..., Outcome], ledger: Ledger, tmp_path: Path, leporello: Leporello
) -> None:
    config = tmp_path / "small.yaml"
    config.write_text(f"windows: {{{MODELS[kind]}: 12000}}\n", encoding="utf-8")
    outcome = run(kind, 14, "--config", str(config))
    figures = told(outcome)
    assert outcome.code == 5
    assert figures["requests"] == 14
    assert figures["folds"] > 0
    assert len(ledger.entries) > 14
    assert figures["dollars"] == pytest.approx(ledger.dollars, abs=0.00005)
    verb, amount = re.findall(
        r"folding +(saved|cost) \$([\d.]+).*, beside an unfolded history \(an estimate\)", outcome.err
    )[0]
    counted = leporello("usage", *figures["conversations"], "--json").json["total"]
    assert (1 if verb == "saved" else -1) * float(amount) == pytest.approx(counted["folding_saved_usd"], abs=0.00005)


def test_the_page_shows_the_report_as_it_is(run: Callable[..., Outcome], tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "wrap.md").read_text(encoding="utf-8")
    shown = re.findall(r"^  ([a-z][a-z ]{12}) \S", page, re.MULTILINE)
    config = tmp_path / "small.yaml"
    config.write_text(f"windows: {{{MODELS['openai']}: 12000}}\n", encoding="utf-8")
    printed = re.findall(r"^  ([a-z][a-z ]{12}) \S", run("openai", 14, "--config", str(config)).err, re.MULTILINE)
    assert shown
    assert shown == printed


def test_a_session_counts_only_itself(run: Callable[..., Outcome], ledger: Ledger) -> None:
    run("openai", 3)
    ledger.entries.clear()
    assert told(run("openai", 2))["read"] == ledger.tokens("prompt_tokens")


def test_planted_a_gateway_that_does_not_see_its_conversations(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BackgroundGateway, "record", lambda *_: None)
    with pytest.raises(IndexError):
        told(run("openai", 1))


def test_a_program_that_asks_nothing_is_told_so(leporello: Leporello, provider: ModelServer) -> None:
    outcome = leporello("wrap", "--", sys.executable, "-c", "pass")
    assert outcome.code == 0
    assert "No request came to the gateway." in outcome.err


def test_a_refused_key_is_told_and_the_program_sees_its_providers_status(
    leporello: Leporello, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-nobody")
    outcome = leporello("wrap", "--", sys.executable, "-c", REFUSED)
    assert outcome.code == 41
    assert re.search(r"^  refused +1 request: 1 with 401$", outcome.err, re.MULTILINE)
    assert re.search(r"^  requests +0, 0 folds$", outcome.err, re.MULTILINE)


def test_a_websocket_that_is_not_served_is_no_refusal() -> None:
    gateway = BackgroundGateway(4711)
    gateway.statuses.update([426, 500, 426])
    with closing(open_store(":memory:")) as store:
        told_ = list(_report(store, gateway, 0.0, model="", option=""))
    assert told_ == ["refused       1 request: 1 with 500"]


def test_the_longest_conversation_comes_first_and_not_a_title() -> None:
    gateway = BackgroundGateway(4711)
    gateway.conversations += ["title", "work"]
    with closing(open_store(":memory:")) as store:
        for name, times in (("title", 1), ("work", 2)):
            said: list[Any] = [{"role": "user", "content": f"{name} {time}"} for time in range(times)]
            store.append(name, said)
        told_ = list(_report(store, gateway, 0.0, model="", option=""))
    assert told_[-3:] == [
        "conversation  work",
        "              title",
        "see it        leporello sessions show work",
    ]


OTHERS = """
import os, sys, urllib.error, urllib.request

def status(address):
    try:
        return urllib.request.urlopen(address, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code

own = os.environ["ANTHROPIC_BASE_URL"]
place = own.rpartition("/")[0]
paths = ["/v1/models", "/metrics", "/x/v1/models", "/v1/sessions"]
found = [status(own + "/healthz"), *(status(place + path) for path in paths), status(own + "/v1/sessions")]
sys.exit(0 if found == [200, 404, 404, 404, 404, 404] else 1)
"""


def test_other_users_of_the_machine_find_nothing(leporello: Leporello, provider: ModelServer) -> None:
    assert leporello("wrap", "--", sys.executable, "-c", OTHERS).code == 0


def test_planted_a_gateway_without_a_secret(
    leporello: Leporello, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_SecretPath", lambda app, **_: app)
    assert leporello("wrap", "--", sys.executable, "-c", OTHERS).code == 1


def test_a_program_that_is_not_there(leporello: Leporello, provider: ModelServer) -> None:
    outcome = leporello("wrap", "no-such-agent")
    assert outcome.code == 2
    assert "no-such-agent cannot be started (No such file or directory)" in outcome.err


def test_print_starts_nothing_and_writes_nothing(leporello: Leporello, provider: ModelServer, tmp_path: Path) -> None:
    outcome = leporello("wrap", "--print", "claude", "--continue")
    assert outcome.code == 0
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:PORT/SECRET\n" in outcome.out
    assert "\nclaude --continue\n" in outcome.out
    assert f"anthropic: {provider.anthropic_url} (from ANTHROPIC_BASE_URL)" in outcome.out
    assert "sk-of-the-user" not in outcome.out
    assert not (tmp_path / "home").exists()


class Wrapped:
    """`leporello wrap` in a process of its own, around a program that says where its gateway is, and waits."""

    SCRIPT = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print(os.getpid(), os.environ['OPENAI_BASE_URL'], flush=True)\n"
        "time.sleep(120)\n"
    )

    def __init__(self) -> None:
        command = [sys.executable, "-m", "leporello", "wrap", "--", sys.executable, "-c", self.SCRIPT]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        number, address = self.process.stdout.readline().split()
        self.pid, self.port = int(number), int(re.findall(r":(\d+)/", address)[0])

    def is_serving(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def is_running(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        with open(f"/proc/{self.pid}/stat") as file:  # noqa: PTH123 - no file of ours
            return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def wrapped(provider: ModelServer) -> Iterator[Wrapped]:
    one = Wrapped()
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def gone(happened: Callable[[], bool], seconds: float = 20) -> bool:
    """Wait until something is no longer so."""
    end = time.monotonic() + seconds
    while happened() and time.monotonic() < end:
        time.sleep(0.05)
    return not happened()


def test_a_signal_reaches_the_program_and_its_exit_code_comes_back(wrapped: Wrapped) -> None:
    wrapped.process.send_signal(signal.SIGTERM)
    _, told_ = wrapped.process.communicate(timeout=30)
    assert wrapped.process.returncode == 7
    assert "ended after" in told_
    assert not wrapped.is_serving()


def test_the_link_that_is_printed_opens_the_page_once(wrapped: Wrapped) -> None:
    assert wrapped.process.stderr is not None
    told = wrapped.process.stderr.readline() + wrapped.process.stderr.readline()
    found = re.search(r"see the window, while it runs: (http://127\.0\.0\.1:(\d+)/view/enter\?token=\S+) ", told)
    assert found, told
    assert int(found[2]) == wrapped.port
    page = httpx2.get(found[1], follow_redirects=False)
    assert (page.status_code, page.headers["location"]) == (303, "/view")
    assert httpx2.get(found[1], follow_redirects=False).status_code == 403


def test_a_program_that_a_signal_ended_has_the_status_of_a_shell(wrapped: Wrapped) -> None:
    os.kill(wrapped.pid, signal.SIGKILL)
    wrapped.process.communicate(timeout=30)
    assert wrapped.process.returncode == 128 + signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a program that its parent was killed")
def test_nothing_is_left_when_wrap_is_killed(wrapped: Wrapped) -> None:
    assert wrapped.is_serving()
    wrapped.process.kill()
    wrapped.process.wait(30)
    assert gone(wrapped.is_serving)
    assert gone(wrapped.is_running)


AT_TERMINAL = """
import sys, time
try:
    print("ready", sys.stdin.isatty(), flush=True)
    time.sleep(120)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(9)
"""


def test_the_keys_of_the_terminal_are_the_programs(provider: ModelServer) -> None:
    """Ctrl-C interrupts the program, once; `wrap` waits for what that makes of it, and tells its figures."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "leporello", "wrap", "--", sys.executable, "-c", AT_TERMINAL],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one system call
    )
    os.close(theirs)
    try:
        shown = until(ours, b"ready True")
        os.write(ours, b"\x03")
        shown += until(ours, b"ended after")
        assert process.wait(30) == 9, shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert shown.count(b"interrupted") == 1
    assert b"Traceback" not in shown


def until(terminal: int, wanted: bytes) -> bytes:
    """Read a terminal until something is shown."""
    shown = b""
    while wanted not in shown:
        shown += os.read(terminal, 4096)
    return shown
