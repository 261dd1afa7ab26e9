"""The tools and their arguments as data: the schemas for the model and the checks come from the same table."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from leporello.errors import LeporelloError
from leporello.lcm.artifacts import KINDS
from leporello.redact import redact


class ArgumentError(LeporelloError):
    """An argument that a tool cannot take; the text says what is right."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument: its type, its limits and what it means."""

    name: str
    kind: Literal["string", "integer", "boolean", "time"]
    meaning: str
    default: Any = None
    required: bool = False
    least: int = 1
    most: int = 0
    choices: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of this argument."""
        made: dict[str, Any] = {"type": "string" if self.kind == "time" else self.kind, "description": self.meaning}
        if self.choices:
            made["enum"] = list(self.choices)
        if self.kind == "integer":
            made |= {"minimum": self.least, "maximum": self.most}
        if self.default is not None:
            made["default"] = self.default
        return made

    def checked(self, value: Any) -> Any:
        """Return the value, or raise what is right."""
        match self.kind:
            case "string":
                return self._text(value)
            case "integer":
                return self._number(value)
            case "boolean":
                if isinstance(value, bool):
                    return value
                raise ArgumentError(f"{self.name} must be true or false")
            case "time":
                return _time(self.name, value)

    def _text(self, value: Any) -> str:
        if not isinstance(value, str) or (self.required and not value.strip()):
            raise ArgumentError(f"{self.name} must be a text" + (" that is not empty" if self.required else ""))
        if self.choices and value not in self.choices:
            raise ArgumentError(f"{self.name} must be one of {', '.join(self.choices)}, not {redact(value)[:40]!r}")
        return value

    def _number(self, value: Any) -> int:
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise ArgumentError(f"{self.name} must be a whole number from {self.least} to {self.most}")
        return value


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool as the model sees it."""

    name: str
    description: str
    arguments: tuple[Argument, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Return the schema in OpenAI's bare format."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": {
                "type": "object",
                "properties": {argument.name: argument.schema() for argument in self.arguments},
                "required": [argument.name for argument in self.arguments if argument.required],
            },
        }

    def checked(self, given: Any) -> dict[str, Any]:
        """Return all arguments with their defaults, or raise what is wrong with the given ones."""
        if not isinstance(given, dict):
            raise ArgumentError(f"the arguments of {self.name} must be an object: {self._usage()}")
        known = {argument.name: argument for argument in self.arguments}
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ArgumentError(
                    f"{self.name} has no argument {redact(str(name))[:40]!r}{hint} It takes {self._usage()}"
                )
        return {name: self._value(argument, given.get(name)) for name, argument in known.items()}

    def _value(self, argument: Argument, value: Any) -> Any:
        if value is None:
            if argument.required:
                raise ArgumentError(f"{self.name} needs {argument.name}: {argument.meaning}")
            return argument.default
        return argument.checked(value)

    def _usage(self) -> str:
        return ", ".join(f"{a.name}{'' if a.required else '?'} ({a.kind})" for a in self.arguments) or "no arguments"


def _time(name: str, value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    try:
        moment = datetime.fromisoformat(value.strip())
    except (AttributeError, ValueError):
        raise ArgumentError(
            f"{name} must be a time such as 2026-11-15 or 2026-11-15T09:30:00Z, in UTC when nothing else is said"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_LIMIT = Argument(name="limit", kind="integer", meaning="How many results to return.", default=10, most=200)
_CURSOR = Argument(name="cursor", kind="string", meaning="Where an earlier answer ended: its `cursor`.")

TOOLS = (
    Tool(
        name="lcm_grep",
        description="Search the context knowledge graph: every message of this conversation, also those that are "
        "folded out of the window. Finds words, identifiers, paths, numbers, in any language. Each hit names the "
        "message and the node that covers it; unfold either with lcm_expand.",
        arguments=(
            Argument(name="query", kind="string", meaning="What to look for; quote an exact phrase.", required=True),
            _LIMIT,
            _CURSOR,
            Argument(
                name="sort",
                kind="string",
                meaning="Best hits first, or newest first.",
                default="relevance",
                choices=("relevance", "recency"),
            ),
            Argument(
                name="role",
                kind="string",
                meaning="Only messages of this role.",
                choices=("user", "assistant", "tool", "system"),
            ),
            Argument(name="tool", kind="string", meaning="Only calls and results of this tool."),
            Argument(name="since", kind="time", meaning="Only messages from this time on (ISO-8601)."),
            Argument(name="until", kind="time", meaning="Only messages up to this time (ISO-8601)."),
            Argument(
                name="conversation", kind="string", meaning="Another conversation of yours; `*` for all, if allowed."
            ),
            Argument(
                name="regex", kind="boolean", meaning="Take the query as a regular expression; slower.", default=False
            ),
        ),
    ),
    Tool(
        name="lcm_describe",
        description="Describe a node (n12), a message (m34) or a file (file:src/app.py): what it covers, its children, "
        "time span and size, and how to go on. For a file: everything that happened to it.",
        arguments=(
            Argument(name="id", kind="string", meaning="A node id, a message id, or file:PATH.", required=True),
        ),
    ),
    Tool(
        name="lcm_expand",
        description="Return the original messages under a node, or one message, word for word, within a token budget. "
        "When not everything fits, the answer says so and its cursor continues.",
        arguments=(
            Argument(name="id", kind="string", meaning="A node id (n12) or a message id (m34).", required=True),
            Argument(name="max_tokens", kind="integer", meaning="The budget.", default=4_000, least=100, most=100_000),
            _CURSOR,
        ),
    ),
    Tool(
        name="lcm_expand_query",
        description="Answer a question from the folded history, citing message ids. Use it when you need a fact from "
        "earlier turns and do not know where it stands.",
        arguments=(
            Argument(name="question", kind="string", meaning="The question.", required=True),
            Argument(name="max_tokens", kind="integer", meaning="The budget.", default=2_000, least=100, most=20_000),
        ),
    ),
    Tool(
        name="lcm_artifacts",
        description="List what this conversation did, exactly: files read and written, commands and their outcome, "
        "errors, decisions, values; newest first, each with the message where it happened.",
        arguments=(
            Argument(name="kind", kind="string", meaning="Only this kind.", choices=KINDS),
            Argument(name="query", kind="string", meaning="Only those that contain this text."),
            Argument(name="limit", kind="integer", meaning="How many to return.", default=30, most=200),
            _CURSOR,
        ),
    ),
    Tool(
        name="lcm_status",
        description="Tell the state of the context: stored messages, nodes, window, backlog, last folds, cost.",
    ),
)
