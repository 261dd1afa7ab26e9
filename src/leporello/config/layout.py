"""Changing one value in a YAML text by touching only the characters that hold it.

Every other line stays as it is, comments and odd spacing included. A text whose layout these few rules do not
cover comes out wrong, so the caller compares what the new text says with what it should say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_NOT_TEXT = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


class LayoutError(ValueError):
    """A text that is laid out in a way these rules do not cover."""


def inline(value: Any) -> str:
    """Write a value on one line of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{inline(key)}: {inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(value)) or _decimal(value)
    return _quoted_if_needed(str(value)) if not isinstance(value, int) else str(value)


def _decimal(value: float) -> str:
    """Write a float so that YAML reads one: 1e-07 needs its point."""
    mantissa, e, exponent = repr(value).partition("e")
    return mantissa + ("" if "." in mantissa or not e else ".0") + e + exponent


def _quoted_if_needed(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    return '"' + "".join(_ESCAPES.get(ch) or (ch if ch.isprintable() else f"\\U{ord(ch):08x}") for ch in text) + '"'


def with_value(text: str, root: Node | None, location: tuple[str, ...], value: Any) -> str:
    """Return the text with a value put at a location, whether or not something stands there."""
    if root is None:
        return _appended(text, _nested(location, value, indent=0, newline=_newline(text)))
    mapping = _as_mapping(root)
    for depth, name in enumerate(location):
        entry = _find(mapping, name)
        if entry is None:
            return _with_entry(text, mapping, location[depth:], value, at_root=mapping is root)
        rest = location[depth + 1 :]
        if rest and _is_blank(entry.value) and not mapping.flow_style:
            return _below(text, entry, rest, value)
        if not rest or _is_null(entry.value):
            return _with_entry_value(text, entry, _wrapped(rest, value))
        mapping = _as_mapping(entry.value)
    raise LayoutError("an empty location")


def without(text: str, root: Node | None, location: tuple[str, ...]) -> str:
    """Return the text without the entry at a location, which must be there."""
    mapping = _as_mapping(root)
    outer: list[tuple[MappingNode, _Entry]] = []
    for name in location:
        entry = _find(mapping, name)
        if entry is None:
            raise LayoutError(f"no {name}")
        outer.append((mapping, entry))
        if len(outer) < len(location):
            mapping = _as_mapping(entry.value)
    mapping, entry = outer.pop()
    while outer and _is_all_of(text, outer[-1][1], entry, mapping):
        mapping, entry = outer.pop()
    return _without_flow_entry(text, mapping, entry) if mapping.flow_style else _without_lines(text, entry)


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A key with its value, as nodes."""

    key: ScalarNode
    value: Node


def _find(mapping: MappingNode, name: str) -> _Entry | None:
    return next((_Entry(key=key, value=value) for key, value in mapping.value if key.value == name), None)


def _as_mapping(node: Node | None) -> MappingNode:
    if not isinstance(node, MappingNode):
        raise LayoutError("a single value or a list where a block is needed")
    return node


def _is_null(node: Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _is_blank(node: Node) -> bool:
    return _is_null(node) and bool(node.start_mark.index == node.end_mark.index)


def _with_entry_value(text: str, entry: _Entry, written: str) -> str:
    after_colon = _after_colon(text, entry)
    if _is_blank(entry.value):
        return text[:after_colon] + " " + written + text[after_colon:]
    if isinstance(entry.value, MappingNode | SequenceNode) or _is_block_text(entry.value):
        return text[:after_colon] + " " + written + text[_end(text, entry.value) :]
    return text[: entry.value.start_mark.index] + written + text[entry.value.end_mark.index :]


def _after_colon(text: str, entry: _Entry) -> int:
    colon = re.compile(r"[ \t]*:").match(text, entry.key.end_mark.index)
    if colon is None:
        raise LayoutError("a key without a colon behind it")
    return colon.end()


def _with_entry(text: str, mapping: MappingNode, names: tuple[str, ...], value: Any, *, at_root: bool) -> str:
    if mapping.flow_style:
        return _with_flow_entry(text, mapping, f"{inline(names[0])}: {_wrapped(names[1:], value)}")
    indent = mapping.start_mark.column
    lines = _nested(names, value, indent=indent, newline=_newline(text))
    return _appended(text, lines) if at_root and indent == 0 else _after_line(text, _end(text, mapping), lines)


def _with_flow_entry(text: str, mapping: MappingNode, written: str) -> str:
    if not mapping.value:
        return text[: mapping.start_mark.index] + "{" + written + "}" + text[mapping.end_mark.index :]
    key, value = mapping.value[-1]
    end = _entry_end(text, _Entry(key=key, value=value))
    return text[:end] + ", " + written + text[end:]


def _below(text: str, entry: _Entry, names: tuple[str, ...], value: Any) -> str:
    lines = _nested(names, value, indent=entry.key.start_mark.column + 2, newline=_newline(text))
    return _after_line(text, _after_colon(text, entry), lines)


def _nested(names: tuple[str, ...], value: Any, *, indent: int, newline: str) -> str:
    """Write `a.b: value` as one line per name, each two columns further in."""
    *blocks, last = names
    lines = [" " * (indent + 2 * depth) + f"{inline(name)}:" for depth, name in enumerate(blocks)]
    lines.append(" " * (indent + 2 * len(blocks)) + f"{inline(last)}: {inline(value)}")
    return newline.join(lines) + newline


def _wrapped(names: tuple[str, ...], value: Any) -> str:
    for name in reversed(names):
        value = {name: value}
    return inline(value)


def _appended(text: str, lines: str) -> str:
    gap = "" if not text or text.endswith("\n") else _newline(text)
    return text + gap + lines


def _after_line(text: str, index: int, lines: str) -> str:
    end = text.find("\n", index)
    return _appended(text, lines) if end < 0 else text[: end + 1] + lines + text[end + 1 :]


def _without_lines(text: str, entry: _Entry) -> str:
    start = text.rfind("\n", 0, entry.key.start_mark.index) + 1
    end = text.find("\n", _entry_end(text, entry))
    return text[:start] if end < 0 else text[:start] + text[end + 1 :]


def _without_flow_entry(text: str, mapping: MappingNode, entry: _Entry) -> str:
    names = [key for key, _ in mapping.value]
    position = names.index(entry.key)
    start = entry.key.start_mark.index
    if position + 1 < len(names):
        return text[:start] + text[names[position + 1].start_mark.index :]
    if position > 0:
        key, value = mapping.value[position - 1]
        start = _entry_end(text, _Entry(key=key, value=value))
    return text[:start] + text[_entry_end(text, entry) :]


def _is_all_of(text: str, block: _Entry, entry: _Entry, mapping: MappingNode) -> bool:
    """Tell whether an entry is all that its block holds, so that the block can go with it: no comment is lost."""
    between = text[_after_colon(text, block) : entry.key.start_mark.index]
    return len(mapping.value) == 1 and not mapping.flow_style and not between.strip()


def _end(text: str, node: Node) -> int:
    """Return where a node's own characters end; YAML's mark of a block lies behind the comments that follow it."""
    if isinstance(node, MappingNode) and not node.flow_style and node.value:
        key, value = node.value[-1]
        return _entry_end(text, _Entry(key=key, value=value))
    if isinstance(node, SequenceNode) and not node.flow_style and node.value:
        return _end(text, node.value[-1])
    end = int(node.end_mark.index)
    return len(text[:end].rstrip()) if _is_block_text(node) or _is_blank(node) else end


def _entry_end(text: str, entry: _Entry) -> int:
    return _after_colon(text, entry) if _is_blank(entry.value) else _end(text, entry.value)


def _is_block_text(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.style in {"|", ">"}


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
