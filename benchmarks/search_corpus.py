"""A long agent conversation with needles: the same one for every run, of any length."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages import Message

NEEDLES_PER_KIND = 30
COMMON_WORD, SECOND_COMMON_WORD = "deployment", "database"


def _words(text: str) -> list[str]:
    return text.split()


_NOUNS = _words("""
    cache index queue worker request response token schema migration table column user account session parser socket
    thread lock timeout retry batch metric alert dashboard cluster node replica shard backup restore snapshot volume
    bucket gateway proxy router balancer certificate domain record zone policy role permission group secret vault config
    flag feature branch commit merge rebase conflict pipeline stage artifact image container registry pod service
    namespace ingress budget invoice payment refund order customer product price discount coupon cart shipping address
    warehouse
""")
_VERBS = _words(
    "checks updates restarts deletes creates reads writes renames splits merges moves copies validates logs"
)
_ADJECTIVES = _words("slow stale broken missing duplicate unexpected empty large tiny recent old shared remote local")
_HAN = "我们今天讨论服务器部署问题因为数据连接失败需要重新检查配置文件并且测试所有接口然后发布新版本请确认时间安排谢谢"


@dataclass(frozen=True, kw_only=True)
class Needle:
    """A text that occurs in one message of the corpus, what to search for it with, and where it is."""

    kind: str
    query: str
    message: Message
    position: int


def corpus(count: int, *, seed: int = 7) -> Iterator[tuple[Message, Needle | None]]:
    """Make `count` messages in turns of four (user, call, result, answer), with the needles spread among them."""
    chance = random.Random(seed)
    planted = {needle.position: needle for needle in needles(count)}
    for position in range(count):
        needle = planted.get(position)
        yield (needle.message if needle else _message(position, chance)), needle


def needles(count: int) -> list[Needle]:
    """Make the needles for a corpus of `count` messages, thirty of each of ten kinds."""
    made = []
    for number in range(NEEDLES_PER_KIND):
        for kind, (query, text) in _kinds(number).items():
            call = kind == "tool-call arguments"
            role = "assistant" if call else "user"
            message: Message = {"role": role, "content": None if call else text}
            if call:
                message["tool_calls"] = [_call(f"needle-{number}", "terminal", {"command": text})]
            made.append((kind, query, message))
    step = max(1, count // (len(made) + 1))
    return [
        Needle(kind=kind, query=query, message=message, position=(index + 1) * step)
        for index, (kind, query, message) in enumerate(made)
    ]


def _kinds(number: int) -> dict[str, tuple[str, str]]:
    chance = random.Random(number)
    word = "zq" + "".join(chance.choice("bcdfgklmnprstvw") + chance.choice("aeiou") for _ in range(4))
    uuid = "-".join("".join(chance.choice("0123456789abcdef") for _ in range(n)) for n in (8, 4, 4, 4, 12))
    rare = "".join(chr(0x9A00 + number * 7 + i) for i in range(5))
    short = chr(0x9B00 + number * 2) + chr(0x9B01 + number * 2)
    emoji = chr(0x1F600 + number) + chr(0x1F980 + number)
    return {
        "word": (word, f"The answer that nobody wrote down was {word}, as agreed."),
        "identifier": (f"retry_limit_{number}_max", f"Please raise retry_limit_{number}_max to nine."),
        "uuid": (uuid, f"The trace is {uuid} in the log of last night."),
        "hyphenated id": (f"svc-{1000 + number}-prod-eu", f"It runs on svc-{1000 + number}-prod-eu only."),
        "path": (f"src/mod{number}/handler_{number}.py", f"Look into src/mod{number}/handler_{number}.py first."),
        "CJK, long": (rare, f"我们今天讨论{rare}的问题"),
        "CJK, short": (short, f"请检查{short}然后发布"),
        "Latin in CJK": (f"youer{number}x", f"部署youer{number}x需要重新检查"),
        "emoji": (emoji, f"Shipped it {emoji} finally"),
        "tool-call arguments": (f"--shard-key=zone{number}q", f"run-migration --shard-key=zone{number}q --dry"),
    }


def _message(position: int, chance: random.Random) -> Message:
    match position % 4:
        case 0:
            return {"role": "user", "content": _prose(chance, 3)}
        case 1:
            path = f"src/{chance.choice(_NOUNS)}/{chance.choice(_NOUNS)}_{chance.randrange(400)}.py"
            call = _call(f"call-{position}", "read_file", {"path": path, "lines": chance.randrange(900)})
            return {"role": "assistant", "content": _prose(chance, 2), "tool_calls": [call]}
        case 2:
            return {"role": "tool", "tool_call_id": f"call-{position - 1}", "content": _log(chance)}
        case _:
            return {"role": "assistant", "content": _prose(chance, 7)}


def _call(id_: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _prose(chance: random.Random, sentences: int) -> str:
    said = []
    if chance.random() < 0.35:
        said.append(f"The {COMMON_WORD} of the {chance.choice(_NOUNS)} is next.")
    if chance.random() < 0.3:
        said.append(f"Mind the {SECOND_COMMON_WORD} before anything else.")
    if chance.random() < 0.03:
        start = chance.randrange(len(_HAN) - 12)
        said.append(_HAN[start : start + 12])
    said.extend(
        f"The {chance.choice(_ADJECTIVES)} {chance.choice(_NOUNS)} {chance.choice(_VERBS)} every "
        f"{chance.choice(_NOUNS)} when the {chance.choice(_NOUNS)} is {chance.choice(_ADJECTIVES)}."
        for _ in range(sentences)
    )
    return " ".join(said)


def _log(chance: random.Random) -> str:
    lines = []
    for _ in range(chance.randrange(6, 16)):
        where = f"{chance.choice(_NOUNS)}.{chance.choice(_NOUNS)}"
        lines.append(
            f"2026-03-{chance.randrange(1, 29):02} {where}: {chance.choice(_VERBS)} id={chance.randrange(10**6)}"
        )
    if chance.random() < 0.75:
        lines.append(f"{COMMON_WORD} ok")
    return "\n".join(lines)
