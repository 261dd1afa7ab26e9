"""Whose exit it was: an engine's own is its error, the user's stops the turn. Signals are real, in real processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest

from leporello.engine import ForeignCall

pytestmark = pytest.mark.slow

PRELUDE = """
import os, signal, subprocess, sys, threading, time
from leporello import ContextEngine
from leporello.session import Session

class Engine(ContextEngine):
    name = "strange"
    threshold_tokens = context_length = 1000

    def update_from_response(self, usage):
        pass

    def should_compress(self, prompt_tokens=None):
        return True

    def compress(self, messages, current_tokens=None, focus_topic=None):
        DO

def send(number=signal.SIGINT):
    # Another process sends the signal.
    return subprocess.Popen(["kill", f"-{int(number)}", str(os.getpid())])

def user_interrupts(number=signal.SIGINT):
    # The call goes on until a handler ends it.
    sender = send(number)
    for _ in range(3000):
        time.sleep(0.01)

session = Session.open(engine=Engine(), store=":memory:", on_event=lambda event: print(event))
session.add({"role": "user", "content": "Hello"})
BEFORE
try:
    request = session.request()
    print("went on with", len(request["messages"]), "message")
except BaseException as error:
    print("stopped by", type(error).__name__)
print("handler is back:", signal.getsignal(signal.SIGINT) is BACK)
"""


def outcome(do: str, before: str = "", back: str = "signal.default_int_handler") -> list[str]:
    """Run a turn with an engine whose compress() does something; return what was said."""
    code = PRELUDE.replace("DO", textwrap.indent(textwrap.dedent(do).strip(), " " * 8).strip())
    code = code.replace("BEFORE", before).replace("BACK", back)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("do", "named"),
    [
        ("sys.exit(3)", "SystemExit: 3"),
        ("raise SystemExit('enough')", "SystemExit: enough"),
        ("raise KeyboardInterrupt('mine')", "KeyboardInterrupt: mine"),
        ("raise ValueError('odd')", "ValueError: odd"),
    ],
)
def test_an_exit_of_an_engines_own_is_an_engine_error(do: str, named: str) -> None:
    said = outcome(do)
    assert any(f"engine 'strange' failed in compress(): {named}" in line for line in said)
    assert said[-2:] == ["went on with 1 message", "handler is back: True"]


@pytest.mark.parametrize(
    "do",
    [
        "user_interrupts()",
        """
        try:
            user_interrupts()
        except KeyboardInterrupt:
            raise RuntimeError("translated")
        """,
        """
        try:
            user_interrupts()
        except BaseException:
            return messages
        """,
        """
        try:
            user_interrupts()
        finally:
            raise KeyboardInterrupt("another one")
        """,
        """
        import asyncio
        async def work():
            sender = send()
            for _ in range(3000):
                await asyncio.sleep(0.01)
        asyncio.run(work())
        """,
    ],
    ids=["plain", "translated", "swallowed", "replaced", "asyncio"],
)
def test_ctrl_c_stops_the_turn_whatever_the_engine_makes_of_it(do: str) -> None:
    assert outcome(do)[-2:] == ["stopped by KeyboardInterrupt", "handler is back: True"]


def test_a_handler_that_only_takes_note_is_not_an_interrupt_and_the_next_ctrl_c_is() -> None:
    before = """
pressed = []
def once(number, frame):
    pressed.append(number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if len(pressed) == 1:
        send()
signal.signal(signal.SIGINT, once)
"""
    assert outcome("user_interrupts()", before)[-2:] == ["stopped by KeyboardInterrupt", "handler is back: True"]


@pytest.mark.parametrize(
    "handler",
    ["lambda *_: sys.exit(1)", "__import__('functools').partial(lambda *_: sys.exit(1))", "Handler()", "Handler().run"],
    ids=["function", "partial", "object", "method"],
)
def test_the_exit_of_a_signal_handler_stops_the_turn(handler: str) -> None:
    before = f"""
class Handler:
    def __call__(self, *_):
        sys.exit(1)
    def run(self, *_):
        sys.exit(1)
signal.signal(signal.SIGTERM, {handler})
"""
    assert outcome("user_interrupts(signal.SIGTERM)", before)[-2] == "stopped by SystemExit"


def test_a_handler_that_the_engine_sets_stays() -> None:
    said = outcome("signal.signal(signal.SIGINT, print) and None; return messages", back="print")
    assert said[-1] == "handler is back: True"


def test_in_another_thread_an_interrupt_is_the_codes_own() -> None:
    blamed: list[bool] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    def work() -> None:
        call = ForeignCall()
        try:
            with call:
                interrupt()
        except KeyboardInterrupt as error:
            blamed.append(call.blames(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert blamed == [True]


def test_planted_without_the_watch_ctrl_c_is_taken_for_the_engines() -> None:
    before = "from leporello.engine import ForeignCall; ForeignCall._watch = lambda self: None"
    assert outcome("user_interrupts()", before)[-2] == "went on with 1 message"
