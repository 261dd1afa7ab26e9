"""The session that every client is driven through: logs to be read by a tool, and what the model says to it.

The model reads one log in each turn, as the newest instruction says: the first 21, then, told to go on, the others. One
of the first holds a fact that is asked for at the end. The model knows only what is in the request that it gets.
"""

from __future__ import annotations

import json
import random
import re
import threading
from typing import TYPE_CHECKING, Any

from leporello.testing.model_server import Step, Use

if TYPE_CHECKING:
    from pathlib import Path

    from clients.client import Client
    from leporello.testing.model_server import ReceivedRequest

PLANTED = 3
"""The log with the fact."""

RECALL = "lcm_grep"
UNKNOWN = "I do not know."
_INSTRUCTION = re.compile(r"Read the logs (\d+) to (\d+)")
_QUESTION = "At which hook does the spare lamp of crane nine hang?"
_WORDS = re.findall(
    r"\w+",
    "crane berth container quay tide pilot mooring ledger cargo harbour hull winch signal lantern gangway ballast "
    "customs manifest pallet forklift dredger buoy channel breakwater shift foreman weather barometer fender bollard",
)


class Session:
    """The logs of one run, the instructions, and the model behind the gateway."""

    def __init__(self, client: Client, seed: int, turns: int = 0) -> None:
        self._client = client
        self._turns = turns or client.turns
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.fact = f"Quillon-{self._random.randrange(10_000, 99_999)}"
        self.instructions = self._instructions(self._turns // 2)
        self.turn = 0
        self.sides = 0
        self.recalled = False
        self.problems: list[str] = []

    def _instructions(self, half: int) -> list[str]:
        """Return what the client is told; a client that takes one task only is told everything at once."""
        last = self._turns
        question = f"{_QUESTION} Log {PLANTED} tells it. Answer with the name of the hook, and run no command."
        if self._client.one_task:
            return [f"Read the logs 1 to {last} one after the other, each with one command. Then: {question}"]
        return [
            f"Read the logs 1 to {half} one after the other, each with one command, and then say that you are done.",
            f"Read the logs {half + 1} to {last} in the same way, and then say that you are done.",
            question,
        ]

    def write_logs(self, folder: Path) -> None:
        """Write the logs that are read."""
        (folder / "logs").mkdir()
        for number in range(1, self._turns + 1):
            (folder / "logs" / f"{number:02}.txt").write_text(self._log(number), encoding="utf-8")

    def mark(self, number: int) -> str:
        """Return the words that a log begins with, and no other."""
        return f"Log {number} of the harbour."

    def __call__(self, request: ReceivedRequest) -> Step:
        """Say the next thing."""
        with self._lock:
            if self._client.is_side(request):
                self.sides += 1
                return self._client.side(request)
            return self._next(request)

    def _next(self, request: ReceivedRequest) -> Step:
        said = json.dumps(request.items or request.messages, ensure_ascii=False)
        asked, told = said.rfind(_QUESTION), list(_INSTRUCTION.finditer(said))
        if asked >= 0 and (not told or (asked > told[-1].start() and self.turn >= int(told[-1][2]))):
            return self._answer(request, said)
        if not told:
            self.problems.append(f"after turn {self.turn} no instruction was in the request")
            return Step(text=UNKNOWN)
        if self.turn >= int(told[-1][2]):
            return Step(text=f"Done: {self.turn} logs are read.")
        if self.turn and self.mark(self.turn) not in said and self.turn + 1 != int(told[-1][1]):
            self.problems.append(f"the output of turn {self.turn} was not in the request that followed it")
        self.turn += 1
        return self._client.step(request, self.turn, f"cat logs/{self.turn:02}.txt")

    def _answer(self, request: ReceivedRequest, said: str) -> Step:
        """Answer the question from what is in the request; else by the tools of the engine, where it has some."""
        if self.fact in said:
            return self._client.end(f"It hangs at {self.fact}.")
        offered = [tool.get("name") or tool.get("function", {}).get("name") for tool in request.tools]
        if RECALL in offered and not self.recalled:
            self.recalled = True
            return Step(tool_calls=[Use(name=RECALL, arguments={"query": "spare lamp of crane nine"})])
        return self._client.end(UNKNOWN)

    def _log(self, number: int) -> str:
        lines, length = [self.mark(number)], 0
        while length < self._client.log_tokens:
            words = self._random.choices(_WORDS, k=9)
            lines.append(f"{self._random.randrange(100_000)} {' '.join(words)}.")
            length += 14
        if number == PLANTED:
            lines.insert(len(lines) // 2, f"The spare lamp of crane nine hangs at hook {self.fact}.")
        return "\n".join(lines) + "\n"


def any_instruction(text: Any) -> bool:
    """Tell whether a text holds one of the instructions."""
    return bool(_INSTRUCTION.search(str(text)) or _QUESTION in str(text))
