"""Conversations made from a number: the same number gives the same conversation, anywhere. Standard library only."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

if TYPE_CHECKING:
    from leporello.messages.types import Message, Part

End: TypeAlias = Literal["any", "user", "assistant", "tool"]

_WORDS_OF_MANY_SCRIPTS = (
    "the build fails on line 42, please look at src/app.py again and tell me why; it worked yesterday. "
    "retry_count=3 order-7f3a-19 UPPER CamelCase naïve façade Ünïcödé Привет мир "
    "שלום עולם مرحبا 你好世界 請檢查 日本語のテキスト 한국어 텍스트 🙂 👩‍👩‍👧 "
    "🇩🇪 e\u0301 \u200b² ½ … “quoted” \\back tab\tbed <b>&amp;</b>"
)
_WORDS = _WORDS_OF_MANY_SCRIPTS.split(" ")
_NAMES = ("read_file", "write_file", "terminal", "search-files", "mcp__git__log", "lcm_grep")
_IMAGES = (
    "https://example.com/a.png",
    "http://example.com/b.jpg?x=1&y=2",
    "data:image/png;base64,iVBORw0KGgo=",
    "data:image/jpeg;base64,/9j/4AAQ",
)
_MARKERS: tuple[dict[str, str], ...] = ({"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"})


def conversation(
    seed: int,
    *,
    turns: int = 4,
    end: End = "any",
    system: bool | None = None,
    tools: bool = True,
    images: bool = True,
    thinking: bool = True,
    extras: bool = True,
    payload: int = 12,
    system_inside: bool = False,
) -> list[Message]:
    """Return a valid conversation of `turns` user turns.

    `end` says whose message is the last; `system` None leaves it to chance; `extras` are names, timestamps, unknown
    fields, private keys and cache markers; `payload` is about the number of words in a long tool result. With
    `system_inside` system messages stand between the others too, and with `end` "any" perhaps at the end.
    """
    random = Random(seed)  # noqa: S311 - reproducible examples, no cryptography
    make = _Maker(random, images=images, thinking=thinking, extras=extras, payload=payload)
    made = make.conversation(turns, end=end, system=system, tools=tools or end == "tool")
    return make.with_systems_inside(made, last=end == "any") if system_inside else made


class _Maker:
    """Make the pieces of a conversation from one source of chance."""

    def __init__(self, random: Random, *, images: bool, thinking: bool, extras: bool, payload: int) -> None:
        self.random = random
        self.images = images
        self.thinking = thinking
        self.extras = extras
        self.payload = payload
        self.calls = 0
        # Providers write ids in their own ways; some use characters that Anthropic refuses.
        self.id_style = random.choice(("call_{}", "toolu_{:06x}", "functions.run:{}", "{}"))

    def conversation(self, turns: int, *, end: End, system: bool | None, tools: bool) -> list[Message]:
        messages: list[Message] = []
        wants_system = self.chance(0.7) if system is None else system
        if wants_system:
            messages += [self.system() for _ in range(2 if self.chance(0.1) else 1)]
        for turn in range(turns):
            self.turn(messages, tools=tools, end=end if turn == turns - 1 else "next")
        return messages

    def with_systems_inside(self, messages: list[Message], *, last: bool) -> list[Message]:
        """Put system messages behind the first message of the user, but not between a call and its results."""
        first = next(at for at, message in enumerate(messages) if message["role"] == "user")
        result: list[Message] = []
        for at, message in enumerate(messages):
            result.append(message)
            follows = messages[at + 1]["role"] if at + 1 < len(messages) else ""
            if at >= first and follows != "tool" and (follows or last) and self.chance(0.25):
                result += [self.system() for _ in range(2 if self.chance(0.2) else 1)]
        return result

    def turn(self, messages: list[Message], *, tools: bool, end: str) -> None:
        messages.append(self.user())
        if end == "any":
            end = self.random.choice(("user", "assistant", "tool") if tools else ("user", "assistant"))
        if end == "user":
            return
        rounds = self.random.choice((0, 0, 1, 1, 2, 4)) if tools else 0
        for _ in range(max(rounds, end == "tool")):
            messages += self.tool_round()
        # Now and then the user speaks before the assistant has summed up.
        if end == "assistant" or (end == "next" and not (rounds and self.chance(0.15))):
            messages.append(self.assistant())

    def system(self) -> Message:
        role = "developer" if self.chance(0.1) else "system"
        return self.with_extras({"role": role, "content": self.text_content()})

    def user(self) -> Message:
        content = self.text_content()
        if self.images and self.chance(0.1):
            parts = content if isinstance(content, list) else [self.text_part(content)]
            content = [*parts, self.image()] if self.chance(0.7) else [self.image()]
        return self.with_extras({"role": "user", "content": content})

    def assistant(self) -> Message:
        message: Message = {"role": "assistant", "content": self.text_content()}
        return self.with_extras(self.with_thinking(message))

    def tool_round(self) -> list[Message]:
        calls = [self.call() for _ in range(self.random.choice((1, 1, 1, 2, 3)))]
        content = self.random.choice((None, None, "", self.text(6), "\n\n"))
        message: Message = {"role": "assistant", "content": content, "tool_calls": calls}
        results = [self.result(call) for call in calls]
        if self.chance(0.1):
            results.reverse()
        return [self.with_extras(self.with_thinking(message)), *results]

    def call(self) -> dict[str, Any]:
        self.calls += 1
        call_id = self.id_style.format(self.calls)
        arguments = {"path": self.text(2), "n": self.random.randrange(-5, 10**6), "options": [True, None, 0.5, {}]}
        raw = self.random.choice(
            ("{}", '{"a":1, "a":2}', json.dumps(arguments), json.dumps(arguments, ensure_ascii=False))
        )
        return {"id": call_id, "type": "function", "function": {"name": self.random.choice(_NAMES), "arguments": raw}}

    def result(self, call: dict[str, Any]) -> Message:
        content: Any = self.random.choice(("", "ok", None, None))
        if content is None:
            content = self.text(self.payload)
        if self.chance(0.1):
            content = [self.text_part(self.text(4)), *([self.image()] if self.images else [])]
        message: Message = {"role": "tool", "tool_call_id": call["id"], "content": content}
        if self.chance(0.3):
            message["name"] = call["function"]["name"]
        return self.with_extras(message)

    def with_thinking(self, message: Message) -> Message:
        if not self.thinking or not self.chance(0.25):
            return message
        blocks = [self.thought() for _ in range(self.random.choice((1, 1, 2)))]
        if self.chance(0.4):
            return {**message, "thinking_blocks": blocks}
        content = message["content"]
        words = isinstance(content, str) and content.strip()
        parts = content if isinstance(content, list) else [self.text_part(content)] if words else []
        if parts and self.chance(0.3):
            return {**message, "content": [parts[0], *blocks, self.text_part(self.text(3)), *parts[1:]]}
        return {**message, "content": [*blocks, *parts]}

    def thought(self) -> Part:
        if self.chance(0.2):
            return {"type": "redacted_thinking", "data": f"data{self.random.randrange(10**9)}"}
        signature = f"sig{self.random.randrange(10**9)}=="
        return {"type": "thinking", "thinking": self.random.choice(("", self.text(8))), "signature": signature}

    def with_extras(self, message: Message) -> Message:
        if not self.extras:
            return message
        chance = self.random.random()
        if chance < 0.10:
            message["timestamp"] = f"2026-03-{self.random.randrange(10, 30)}T10:00:00Z"
        elif chance < 0.15:
            message["name"] = self.random.choice(("Ada", "Bo-2"))
        elif chance < 0.20:
            message = cast(
                "Message", {**message, "metadata": {"run": self.random.randrange(99), "tags": ["a", None, 1.5]}}
            )
        elif chance < 0.25:
            message = cast("Message", {**message, "_note": {"seen": True}})
        elif chance < 0.30:
            message["cache_control"] = dict(self.random.choice(_MARKERS))
        elif chance < 0.33 and message["role"] == "assistant":
            message["reasoning_content"] = self.text(5)
        return message

    def text_content(self) -> Any:
        if self.chance(0.75):
            return self.text(8)
        return [self.text_part(self.text(5)) for _ in range(self.random.choice((1, 1, 2, 3)))]

    def text_part(self, text: str) -> Part:
        part: Part = {"type": "text", "text": text}
        if self.extras and self.chance(0.1):
            part["cache_control"] = dict(self.random.choice(_MARKERS))
        if self.extras and self.chance(0.05):
            part["annotations"] = []
        return part

    def image(self) -> Part:
        part: Part = {"type": "image_url", "image_url": {"url": self.random.choice(_IMAGES)}}
        if self.chance(0.2):
            part["image_url"]["detail"] = "low"
        return part

    def text(self, words: int) -> str:
        count = self.random.randrange(1, words + 1)
        return "said: " + " ".join(self.random.choices(_WORDS, k=count))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability
