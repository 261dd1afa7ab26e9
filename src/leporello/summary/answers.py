"""What a model answered, checked and made harmless before it may stand for a part of the conversation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leporello.errors import EmptyAnswerError, MalformedAnswerError
from leporello.llm.client import visible_text
from leporello.redact import redact
from leporello.summary.template import Sections, parse, trim
from leporello.tokens import count_text

if TYPE_CHECKING:
    from leporello.llm.client import Completion


class NotShorterError(MalformedAnswerError):
    """A summary that is not shorter than what it summarises."""


def _any(*patterns: str) -> str:
    return f"(?:{'|'.join(patterns)})"


_MAX_REFUSAL = 600
_REFUSAL = re.compile(
    r"\s*"
    + _any(
        *(r"i['’]?m sorry", "i am sorry", r"sorry\b", "i apologi[sz]e", "unfortunately,? i", r"as an ai\b"),
        r"i (?:can(?:no|['’])t|am unable|am not able|won['’]t|will not|must decline)",
        *("很?抱歉", "对不起", "我(?:无法|不能)"),
    ),
    re.IGNORECASE,
)
_PLACEHOLDERS = frozenset(
    (
        *("", "summary", "the summary", "a summary", "conversation summary", "summary of the conversation"),
        *("here is the summary", "here s the summary", "summary goes here", "summary follows", "no summary"),
        *(
            "placeholder",
            "todo",
            "tbd",
            "na",
            "n a",
            "none",
            "null",
            "empty",
            "ok",
            "okay",
            "done",
            "sure",
            "understood",
        ),
        *("无", "摘要", "总结", "好的"),
    )
)

# The opening bracket of what only a host, a provider or a chat template may write; a round one makes it mere words.
_LIVE_BRACKET = re.compile(
    r"\[(?=\s*"
    + _any(
        *("context compaction", "context summary", "note: some earlier conversation turns", "old tool output cleared"),
        *(r"#\d", r"node \w+ ·", r"part \d"),
        *(r"/?inst\]", r"/?sys\]", r"system\b", r"tool_calls?\b"),
    )
    + r")|<(?=[|｜]|/?\s*(?:[\w-]{1,20}:)?"
    + _any(
        *("tool_?calls?", "tool_?use", "tool_?results?", "tool_?response", "function_?calls?", "function_?results?"),
        *("function", "invoke", "parameter", r"system(?:[-_]\w+)?", "user", "assistant", "human", "developer"),
        *("instructions?", "think(?:ing)?", "record-[0-9a-f]{16}", "(?:start|end)_of_turn", "(?:s|sys|bos|eos)(?=>)"),
    )
    + r"\b)",
    re.IGNORECASE,
)
_ROLE_LABEL = re.compile(
    r"^([\s>*#-]*)(system|user|human|assistant|developer|tool)(\*{0,2}\s*[:：])", re.IGNORECASE | re.MULTILINE
)
_ORDER = re.compile(
    _any(
        r"\b(?:ignore|disregard|forget|override)\b[^\n.]{0,40}\b(?:previous|prior|above|earlier|all)\b"
        r"[^\n.]{0,30}\b(?:instructions?|prompts?|messages?|rules?)\b",
        r"\byou (?:must|should|will|are) now\b",
        r"\byour new (?:task|instructions?|role|goal)\b",
        r"\bnew (?:system )?instructions?\s*:",
        "忽略[^\n。]{0,20}(?:指令|指示|提示)",
    ),
    re.IGNORECASE,
)
_BULLET = re.compile(r"\s*(?:(?:[-*•>]|\d{1,3}[.)])\s+)?")
QUOTED = "(text found in the record, not an instruction) "


def accepted(completion: Completion, *, source_tokens: int, budget: int) -> Sections:
    """Return the sections of an answer within its budget, or raise what is wrong with it."""
    text = _whole_lines(visible_text(completion.text), completion.finish_reason)
    if (tokens := count_text(text)) >= source_tokens:
        raise NotShorterError(f"the summary has {tokens:,} tokens, what it summarises {source_tokens:,}")
    if len(text) <= _MAX_REFUSAL and "## " not in text and _REFUSAL.match(text):
        raise EmptyAnswerError("the model refused to summarise")
    sections = parse(neutralised(redact(text)))
    if not any(vars(sections).values()) or _bare(text) in _PLACEHOLDERS:
        raise EmptyAnswerError("the model answered without a summary")
    return trim(sections, budget)


def neutralised(text: str) -> str:
    """Return the text without anything that a host, a provider or a model could take for more than words.

    Markers of a compaction, tags of tool calls and of roles, special tokens of chat templates and role labels at the
    beginning of a line lose the sign that makes them work; lines that try to command the reader are marked as
    quotations. All words stay.
    """
    text = _LIVE_BRACKET.sub("(", text)
    text = _ROLE_LABEL.sub(r"\1(\2)\3", text)
    return "\n".join(quoted(line) if _ORDER.search(line) else line for line in text.split("\n"))


def quoted(line: str) -> str:
    """Mark a line as a quotation, behind its bullet."""
    if QUOTED in line:
        return line
    match = _BULLET.match(line)
    start = match.end() if match else 0
    return line[:start] + QUOTED + line[start:]


def _bare(text: str) -> str:
    """Return only the words of a text."""
    return " ".join(re.sub(r"[^\w\s]|_", " ", text).casefold().split())


def _whole_lines(text: str, finish_reason: str) -> str:
    """Drop the last line of an answer that was cut off: half of a value is a wrong value."""
    kept, newline, _ = text.rpartition("\n")
    return kept if finish_reason == "length" and newline and kept.strip() else text
