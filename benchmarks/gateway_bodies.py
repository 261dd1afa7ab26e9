"""Bodies that a hostile client may send: each within the limits of the gateway, or just beyond, and costly."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Message = dict[str, Any]
OPENAI, ANTHROPIC = "/v1/chat/completions", "/v1/messages"


def bodies(size: int) -> dict[str, tuple[str, bytes]]:
    """Return hostile bodies of about this many bytes, or as long as another limit allows: the path and the bytes."""
    made = {name: (OPENAI, _body(make(size))) for name, make in _MESSAGES.items()}
    made |= {name: (OPENAI, make(size)) for name, make in _BYTES.items()}
    blocks = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "r"} for n in range(min(9_000, size // 80))]
    made["tool results in one message"] = (ANTHROPIC, _body([_user(blocks)], max_tokens=9))
    made["tools"] = (OPENAI, _body([_user("a")], tools=_tools(min(9_000, size // 90))))
    return made


def _user(content: Any) -> Message:
    return {"role": "user", "content": content}


def _body(messages: list[Message], **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **more}, ensure_ascii=False).encode()


def _text(words: Callable[[random.Random], str]) -> Callable[[int], list[Message]]:
    """Return what makes one message of words, and what makes the same text an old result of a tool."""

    def make(size: int) -> list[Message]:
        rng = random.Random(1)
        block = "".join(words(rng) for _ in range(min(size // 200, 20_000)))
        text = block * max(1, size // 2 // len(block.encode()))
        calls = _calls(1)
        tail = [m for n in range(12) for m in (_user(f"go on {n} " + "well " * 400), _assistant("yes"))]
        return [_user("a"), calls, _result(0, text), *tail, _user(text)]

    return make


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _calls(count: int, arguments: str = "{}") -> Message:
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": arguments}} for n in range(count)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def _result(number: int, text: str) -> Message:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def _tools(count: int) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": f"f{n}", "parameters": {}}} for n in range(count)]


def _turns(size: int, length: int = 0) -> list[Message]:
    count = min(4_999, size // (length + 60) // 2)
    return [
        m
        for n in range(count)
        for m in (_user(f"question {n} " + "x" * length), _assistant(f"answer {n} in src/a{n}.py"))
    ] + [_user("and?")]


def _images(size: int) -> list[Message]:
    each = min(size // 8, 1024 * 1024)
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * each}}
    return [_user([part] * (size // (each + 100)))]


_MESSAGES: dict[str, Callable[[int], list[Message]]] = {
    "tiny messages": lambda size: [_user("a")] * min(10_000, size // 35),
    "turns": _turns,
    "long turns": lambda size: _turns(size, size // 10_000),
    "one word again and again": _text(lambda _: "word "),
    "words": _text(lambda rng: f"{rng.getrandbits(40):x} "),
    "no spaces": _text(lambda _: "x" * 100),
    "lines": _text(lambda rng: f"{rng.getrandbits(20)} error in /src/{rng.getrandbits(16)}.py: value={rng.random()}\n"),
    "Chinese": _text(lambda rng: chr(0x4E00 + rng.getrandbits(12)) * 2),
    "emoji": _text(lambda rng: chr(0x1F600 + rng.getrandbits(4)) + " "),
    "secrets": _text(lambda rng: f"password=hunter{rng.getrandbits(30)} token: sk-{rng.getrandbits(90):x} "),
    "JSON in a result": lambda size: [_user("a"), _calls(1), _result(0, "[" + '{"a":"\\\\n"},' * (size // 24) + "1]")],
    "parts": lambda size: [_user([{"type": "text", "text": "a"}] * min(60_000, size // 32))],
    "calls": lambda size: [_user("a"), _calls(min(20_000, size // 100)), _user("b")],
    "arguments": lambda size: [
        _user("a"),
        _calls(1, json.dumps({f"k{n}": n for n in range(min(150_000, size // 18))})),
        _user("b"),
    ],
    "results": lambda size: [
        _user("a"),
        _calls(min(4_900, size // 180)),
        *(_result(n, "r") for n in range(min(4_900, size // 180))),
        _user("b"),
    ],
    "results without calls": lambda size: [
        _user("a"),
        *(_result(n, "r") for n in range(min(9_900, size // 60))),
        _user("b"),
    ],
    "system messages": lambda size: [
        *({"role": "system", "content": f"s{n}"} for n in range(min(9_900, size // 45))),
        _user("b"),
    ],
    "system messages between": lambda size: [
        _user("a"),
        *({"role": "system", "content": f"s{n}"} for n in range(min(9_900, size // 45))),
        _user("b"),
    ],
    "images": _images,
    "image": lambda size: [_user([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}}])],
    "an unknown role": lambda size: [{"role": "critic", "content": "x" * size}],
}


def _wrapped(inside: bytes) -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":"a","x":' + inside + b"}]}"


_BYTES: dict[str, Callable[[int], bytes]] = {
    "more messages than may be": lambda size: (
        b'{"messages":[' + b",".join([b'{"role":"user","content":"a"}'] * (size // 30)) + b"]}"
    ),
    "escapes": lambda size: _wrapped(b'"' + b"\\u0041" * (size // 6) + b'"'),
    "lists": lambda size: _wrapped(b"[" + b",".join([b"[]"] * (size // 3)) + b"]"),
    "as many lists as may be": lambda size: _wrapped(b"[" + b",".join([b"[]"] * min(99_000, size // 3)) + b"]"),
    "texts": lambda size: _wrapped(b"[" + b",".join([b'"a"'] * min(190_000, size // 4)) + b"]"),
    "numbers": lambda size: _wrapped(b"[" + b",".join([b"9" * 900] * (size // 901)) + b"]"),
    "names": lambda size: _wrapped(b"{" + b",".join(b'"k%d":1' % n for n in range(min(190_000, size // 13))) + b"}"),
    "nested": lambda _: _wrapped(b"[" * 180 + b"]" * 180),
    "nested too deeply": lambda size: _wrapped(b"[" * (size // 2) + b"]" * (size // 2)),
}
