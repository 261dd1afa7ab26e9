"""Lists of Responses items made from a number: every kind of item, valid by the provider's rules.

The same number gives the same list, anywhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import groupby
from random import Random
from typing import TYPE_CHECKING, Any, Final

from leporello.messages.responses import kind_of
from leporello.messages.responses.items import answered_id_of, call_id_of, is_hosted, speaker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.messages.responses import Item

_WORDS: Final = (
    *("the", "build", "fails", "on", "line", "42", "please", "look", "at", "src/app.py", "again", "it", "worked"),
    *("yesterday", "retry_count=3", "order-7f3a-19", "Привет", "мир", "你好世界", "日本語", "한국어", "🙂", "½"),
    *("“quoted”", "\\back", "<b>&amp;</b>"),
)
_PICTURE: Final = "data:image/png;base64,iVBORw0KGgo="


@dataclass(kw_only=True)
class ItemList:
    """Items as a client sends them, and which of them followed reasoning: by id, the id of the reasoning."""

    items: list[Item] = field(default_factory=list)
    reasoned: dict[str, str] = field(default_factory=dict)


def response_items(seed: int, *, turns: int = 4, payload: int = 12, end: str = "user") -> ItemList:
    """Return a valid list with this number of turns; `payload` is about the number of words in a long output.

    It ends with what the client sends: a message ("user"), the outputs of calls ("tool"), or a trigger of a compaction
    ("trigger").
    """
    return _Maker(Random(seed), payload).made(turns, end)  # noqa: S311 - reproducible examples, no cryptography


def turns(items: list[Item]) -> Iterator[tuple[bool, list[Item]]]:
    """Yield what the model (True) and the client (False) said in turns."""
    hosted = {str(item.get("call_id")) for item in items if is_hosted(item)}
    for of_model, run in groupby(items, key=lambda item: _is_models(item, hosted)):
        yield of_model, list(run)


def _is_models(item: Item, hosted: set[str]) -> bool:
    if kind_of(item) == "message":
        return item.get("role") == "assistant"
    if call_id_of(item) or item.get("call_id") in hosted:
        return True
    return not answered_id_of(item) and speaker_of(item) == "assistant"


class _Maker:
    """Makes items from one source of chance."""

    def __init__(self, random: Random, payload: int) -> None:
        self.random = random
        self.payload = payload
        self.list = ItemList()
        self.count = 0
        self.keeps_ids = self.chance(0.7)  # some clients leave them out

    def made(self, turns: int, end: str) -> ItemList:
        """Make the whole list."""
        if self.chance(0.4):
            self.add({"type": "additional_tools", "role": "developer", "tools": [self.tool() for _ in range(2)]})
        for _ in range(self.random.randrange(5)):  # Codex begins with four
            self.add(self.message(self.pick("developer", "system")))
        for turn in range(turns):
            self.turn(last=turn == turns - 1, end=end)
        return self.list

    def turn(self, *, last: bool, end: str) -> None:
        """Let the user say something, and the model answer, with calls in between."""
        self.add(self.message("user"))
        if self.chance(0.15):
            self.add({"type": "configuration_update", "reasoning": {"effort": "high"}})
        if self.chance(0.1):
            told = [{"type": "input_text", "text": self.words()}]
            self.add({"type": "agent_message", "author": "main/search", "recipient": "main", "content": told})
        for _ in range(self.random.randrange(3)):
            self.calls()
        if last and end == "tool":
            self.calls()
        elif last and end == "trigger":
            self.answer()
            self.add({"type": "compaction_trigger"})
        elif not last:
            self.answer()

    def calls(self) -> None:
        """Let the model call tools, and the client answer them in any order."""
        if self.chance(0.15):
            self.program()
            return
        outputs = []
        for kind in self.random.sample(list(_CALLS), self.random.randint(1, 3)):
            self.reasoning()
            if self.chance(0.2):
                self.add(self.hosted())
            call, output = _CALLS[kind](self, self.name("call"))
            self.say(call)
            outputs.append(output)
        self.random.shuffle(outputs)
        for output in outputs:
            self.add(output)

    def program(self) -> None:
        """Let the model run a program that calls a function once or twice."""
        program = self.name("prog")
        self.reasoning()
        code = {"type": "program", "id": self.name("pr"), "call_id": program, "code": self.words(8)}
        self.say({**code, "fingerprint": self.name("fp")})
        caller = {"type": "program", "caller_id": program}
        for _ in range(self.random.randint(1, 2)):
            call, output = _CALLS["function_call"](self, self.name("call"))
            self.add({**call, "caller": caller})
            self.add({**output, "caller": caller})
        done = {"type": "program_output", "id": self.name("po"), "call_id": program, "result": self.words(4)}
        self.add({**done, "status": "completed"})

    def answer(self) -> None:
        """Let the model say something, perhaps in two messages, perhaps after tools of the provider."""
        for _ in range(self.random.randrange(3)):
            self.reasoning()
            self.say(self.hosted())
        if self.chance(0.1):
            call = self.name("call")
            action = {"commands": [self.words(2)]}
            container = {"type": "container_reference", "container_id": self.name("cntr")}
            self.say({"type": "shell_call", "call_id": call, "action": action, "environment": container})
            printed = {"stdout": self.words(), "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
            self.add({"type": "shell_call_output", "call_id": call, "output": [printed]})
        if self.chance(0.3):
            self.reasoning()
            self.say({**self.message("assistant"), "phase": "commentary"})
        self.reasoning()
        self.say(self.message("assistant"))

    def say(self, item: Item) -> None:
        """Add an item of the model; it needs the reasoning that stands before it."""
        before = self.list.items[-1] if self.list.items else {}
        if before.get("type") == "reasoning" and isinstance(item.get("id"), str):
            self.list.reasoned[item["id"]] = before["id"]
        self.add(item)

    def add(self, item: Item) -> None:
        self.list.items.append(item)

    def reasoning(self) -> None:
        """Let the model think, as often as not."""
        if self.chance(0.5):
            return
        summary = [{"type": "summary_text", "text": self.words()}] if self.chance(0.4) else []
        item: Item = {"type": "reasoning", "id": self.name("rs"), "summary": summary}
        if self.chance(0.7):
            item["encrypted_content"] = self.name("secret") * 4
        if self.chance(0.2):
            item["content"] = [{"type": "reasoning_text", "text": self.words()}]
        self.add(item)

    def message(self, role: str) -> Item:
        """Return a message in one of the ways in which clients write them."""
        style = self.random.randrange(3)
        if style == 0:
            return {"role": role, "content": self.words()}
        if style == 1 and role != "assistant":
            return {"type": "message", "role": role, "content": self.words()}
        content = [self.part(role) for _ in range(self.random.randint(1, 2))]
        message: Item = {"type": "message", "role": role, "content": content}
        if role == "assistant":
            message |= {"status": "completed", **self.id("msg")}
            if self.chance(0.4):
                message["phase"] = self.pick("commentary", "final_answer", None)
        return message

    def part(self, role: str) -> Item:
        if role == "assistant":
            if self.chance(0.1):
                return {"type": "refusal", "refusal": self.words()}
            cited = {
                "type": "url_citation",
                "url": "https://example.com",
                "title": "t",
                "start_index": 0,
                "end_index": 3,
            }
            annotations = [cited] if self.chance(0.2) else []
            return {"type": "output_text", "text": self.words(), "annotations": annotations, "logprobs": []}
        if role == "user" and self.chance(0.2):
            chosen: Item = self.pick(
                {"type": "input_image", "image_url": _PICTURE, "detail": "auto"},
                {"type": "input_image", "file_id": self.name("file"), "detail": "low"},
                {"type": "input_file", "file_id": self.name("file"), "filename": "a.pdf"},
            )
            return chosen
        marked = {"prompt_cache_breakpoint": {"mode": "explicit"}} if self.chance(0.05) else {}
        return {"type": "input_text", "text": self.words(), **marked}

    def hosted(self) -> Item:
        """Return an item of a tool that the provider runs."""
        chosen: Item = self.pick(
            {
                "type": "web_search_call",
                **self.id("ws", 1),
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {"type": "file_search_call", **self.id("fs", 1), "status": "completed", "queries": ["q"], "results": None},
            {
                "type": "code_interpreter_call",
                **self.id("ci", 1),
                "status": "completed",
                "code": "print(1)",
                "container_id": "c",
                "outputs": [{"type": "logs", "logs": self.words()}],
            },
            {"type": "image_generation_call", **self.id("ig", 1), "status": "completed", "result": "iVBORw0KGgo=" * 9},
            {
                "type": "mcp_call",
                **self.id("mcp", 1),
                "server_label": "docs",
                "name": "read.page",
                "arguments": "{}",
                "output": self.words(),
            },
            {
                "type": "mcp_list_tools",
                **self.id("mcpl", 1),
                "server_label": "docs",
                "tools": [{"name": "read.page", "input_schema": {"type": "object", "_private": 1}}],
            },
            {"type": "tool_search_call", "execution": "server", "call_id": None, "arguments": {"paths": ["crm"]}},
            {"type": "compaction", **self.id("cmp", 1), "encrypted_content": self.name("opaque") * 4},
            {"type": "context_compaction", "encrypted_content": self.name("opaque") * 4},
            {"type": "hologram", **self.id("holo", 1), "depth": {"_far": [1, None, 2.5]}},
        )
        return chosen

    def tool(self) -> Item:
        return {"type": "function", "name": self.name("tool"), "parameters": {"type": "object"}, "strict": False}

    def id(self, stem: str, share: float = 0.5) -> Item:
        return {"id": self.name(stem)} if self.keeps_ids or self.chance(share) else {}

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def words(self, most: int | None = None) -> str:
        longest = most or (self.payload if self.chance(0.3) else 5)
        return " ".join(self.random.choices(_WORDS, k=self.random.randint(1, max(1, longest))))

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)


def _function(make: _Maker, call: str) -> tuple[Item, Item]:
    arguments = json.dumps({"path": make.words(2)}, ensure_ascii=make.chance(0.5))
    name = {"name": make.pick("read_file", "terminal", "search-files")}
    said = {"type": "function_call", "call_id": call, **name, "arguments": arguments, **make.id("fc")}
    said |= {"namespace": "crm"} if make.chance(0.1) else {}
    said |= {"status": "completed"} if make.chance(0.5) else {}
    parts = [
        {"type": "input_text", "text": make.words()},
        {"type": "input_image", "image_url": _PICTURE, "detail": "low"},
    ]
    output = make.words() if make.chance(0.7) else parts
    return said, {"type": "function_call_output", "call_id": call, "output": output, **make.id("fco", 0)}


def _custom(make: _Maker, call: str) -> tuple[Item, Item]:
    said = {"type": "custom_tool_call", "call_id": call, "name": "apply.patch", "input": make.words(), **make.id("ctc")}
    return said, {"type": "custom_tool_call_output", "call_id": call, "output": make.words()}


def _search(make: _Maker, call: str) -> tuple[Item, Item]:
    said = {"type": "tool_search_call", "call_id": call, "execution": "client", "arguments": {"goal": make.words(3)}}
    return said, {"type": "tool_search_output", "call_id": call, "execution": "client", "tools": [make.tool()]}


def _shell(make: _Maker, call: str) -> tuple[Item, Item]:
    said = {"type": "shell_call", "call_id": call, "action": {"commands": [make.words(3)], "timeout_ms": 1000}}
    said |= {"environment": {"type": "local"}, "status": "completed", **make.id("sh")}
    printed = [
        {"stdout": make.words(), "stderr": make.pick("", make.words()), "outcome": outcome}
        for outcome in ({"type": "exit", "exit_code": make.random.randrange(3)}, {"type": "timeout"})
    ]
    return said, {"type": "shell_call_output", "call_id": call, "output": printed, "max_output_length": 4096}


def _local_shell(make: _Maker, call: str) -> tuple[Item, Item]:
    action = {"type": "exec", "command": ["bash", "-lc", make.words(3)], "env": {"_": "x"}}
    said = {
        "type": "local_shell_call",
        "id": make.name("lsh"),
        "call_id": call,
        "action": action,
        "status": "completed",
    }
    return said, {"type": "local_shell_call_output", "id": call, "output": make.words()}


def _patch(make: _Maker, call: str) -> tuple[Item, Item]:
    operation = {"type": "update_file", "path": "src/app.py", "diff": f"-{make.words()}\n+{make.words()}"}
    said = {
        "type": "apply_patch_call",
        "call_id": call,
        "operation": operation,
        "status": "completed",
        **make.id("apc"),
    }
    output = {"output": make.pick(make.words(), "failed", "")} if make.chance(0.7) else {}
    return said, {"type": "apply_patch_call_output", "call_id": call, "status": "failed", **output}


def _computer(make: _Maker, call: str) -> tuple[Item, Item]:
    checks = {"pending_safety_checks": [], "status": "completed", **make.id("cu", 1)}
    said = {"type": "computer_call", "call_id": call, "action": {"type": "click", "button": "left", "x": 1, "y": 2}}
    shown = make.pick({"image_url": _PICTURE}, {"file_id": make.name("file")})
    output = {"type": "computer_screenshot", **shown}
    return {**said, **checks}, {"type": "computer_call_output", "call_id": call, "output": output}


def _approval(make: _Maker, call: str) -> tuple[Item, Item]:
    said = {"type": "mcp_approval_request", "id": call, "server_label": "docs", "name": "read.page", "arguments": "{}"}
    answer = {"type": "mcp_approval_response", "approval_request_id": call, "approve": make.chance(0.5)}
    return said, answer | ({"reason": make.words(3)} if make.chance(0.3) else {})


def _unknown(make: _Maker, call: str) -> tuple[Item, Item]:
    said = {
        "type": "teleport_call",
        "call_id": call,
        "to": {"x": 1.5, "_y": None},
        "status": "completed",
        **make.id("tp"),
    }
    return said, {"type": "teleport_call_output", "call_id": call, "arrived": {"at": make.words(2)}}


_CALLS: Final[dict[str, Callable[[_Maker, str], tuple[Item, Item]]]] = {
    "function_call": _function,
    "custom_tool_call": _custom,
    "tool_search_call": _search,
    "shell_call": _shell,
    "local_shell_call": _local_shell,
    "apply_patch_call": _patch,
    "computer_call": _computer,
    "mcp_approval_request": _approval,
    "teleport_call": _unknown,
}
