"""The prompts of the model summariser: the texts are the `.md` files in `prompts/`, this puts them together.

The conversation stands inside tags whose name is made from a hash of what they enclose. No author of a part of the
conversation can have known that name, so no text inside can end its own quotation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.messages.types import Message

_MAX_FOCUS = 400
_WORDS_PER_TOKEN = 0.75


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one call is to do with the material; `name` is "summarise", "map" or "reduce".

    `trail` is what was taken from the originals without a model: files, names, values and errors to keep as they stand.
    `code` stands in every heading of the material, and in nothing that is quoted there.
    """

    name: str
    budget: int
    focus: str = ""
    previous: str = ""
    memory: str = ""
    trail: str = ""
    number: int = 1
    count: int = 1
    code: str = ""


def prompt(task: Task, material: str) -> list[Message]:
    """Return the messages of a call: the rules, the task, and the material as a fenced record."""
    blocks = {
        "memory": task.memory,
        "earlier summary": task.previous,
        "exact trail": task.trail,
        _heading(task): material,
    }
    blocks = {title: text for title, text in blocks.items() if text}
    boundary = _boundary([*blocks, *blocks.values()])
    record = [f"<{boundary}>\n({title})\n{text}\n</{boundary}>" for title, text in blocks.items()]
    words = int(task.budget * _WORDS_PER_TOKEN)
    system = _text("system", boundary=boundary, code=task.code, budget=task.budget, words=words)
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n\n".join([*_instructions(task), *record, _text("closing", budget=task.budget)])},
    ]


def _heading(task: Task) -> str:
    if task.name == "reduce":
        return "summaries of the parts, oldest first"
    return "what happened since then" if task.previous else "the conversation"


def _instructions(task: Task) -> list[str]:
    texts = [_text(task.name, number=task.number, count=task.count)]
    if task.previous:
        texts.append(_text("update"))
    if task.focus:
        texts.append(_text("focus", focus=" ".join(task.focus.split())[:_MAX_FOCUS]))
    if task.memory:
        texts.append(_text("memory"))
    if task.trail:
        texts.append(_text("trail"))
    return texts


def _boundary(texts: list[str]) -> str:
    whole = "\0".join(texts).encode("utf-8", "surrogatepass")
    return f"record-{blake2b(whole, digest_size=8).hexdigest()}"


def _text(name: str, **values: object) -> str:
    return _template(name).substitute(values)


@cache
def _template(name: str) -> Template:
    return Template(files("leporello.summary").joinpath("prompts", f"{name}.md").read_text("utf-8").strip())
