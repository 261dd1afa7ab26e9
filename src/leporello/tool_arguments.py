"""Check what a model passes to a tool against the tool's JSON schema; what is wrong is said with what is right."""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Any

from leporello.errors import ToolError
from leporello.redact import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHORT = 60
_LONGEST_NUMBER = 18
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


def checked(tool: str, schema: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """Return every argument of the schema, absent ones with their default or None; raise `ToolError` for wrong ones."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    if not isinstance(given, dict):
        raise ToolError(f"the arguments of {tool} must be a JSON object: {_usage(schema)}")
    if schema.get("additionalProperties") is False:
        for name in given:
            _refuse_unknown(tool, schema, name)
    found = {name: _value(name, rules, given.get(name)) for name, rules in properties.items()}
    for name in schema.get("required", ()):
        if found.get(name) is None:
            meaning = properties.get(name, {}).get("description", "it is required")
            raise ToolError(f"{tool} needs {name}: {meaning} It takes {_usage(schema)}")
    return found


def _refuse_unknown(tool: str, schema: Mapping[str, Any], name: Any) -> None:
    known = list(schema.get("properties", {}))
    if name in known:
        return
    near = difflib.get_close_matches(str(name)[:_SHORT], known, n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    raise ToolError(f"{tool} has no argument {_shown(name)}{hint} It takes {_usage(schema)}")


def _value(name: str, rules: Mapping[str, Any], value: Any) -> Any:
    if value is None:
        return rules.get("default")
    kind = str(rules.get("type", ""))
    value = _meant(kind, value)
    if kind in _TYPES and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        raise ToolError(f"{name} must be {_WORDS[kind]}, not {_shown(value)}")
    if "enum" in rules and value not in rules["enum"]:
        raise ToolError(f"{name} must be one of {', '.join(map(str, rules['enum']))}, not {_shown(value)}")
    if isinstance(value, (int, float)) and kind in {"integer", "number"}:
        _check_range(name, rules, value)
    if isinstance(value, str):
        _check_length(name, rules, value)
    return value


def _meant(kind: str, value: Any) -> Any:
    """Return the value that a model meant when it wrote a number or a truth as a text, or a whole number as 3.0."""
    if kind == "integer" and isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    if kind == "integer" and isinstance(value, str) and len(value) <= _LONGEST_NUMBER:
        text = value.strip()
        return int(text) if text.isascii() and text.removeprefix("-").isdecimal() else value
    if kind == "boolean" and isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower(), value)
    return value


def _check_range(name: str, rules: Mapping[str, Any], value: float) -> None:
    least, most = rules.get("minimum", -math.inf), rules.get("maximum", math.inf)
    if not least <= value <= most:
        bounds = f"from {least} to {most}" if most != math.inf else f"{least} or more"
        raise ToolError(f"{name} must be {bounds}, not {_shown(value)}")


def _check_length(name: str, rules: Mapping[str, Any], value: str) -> None:
    if len(value) < rules.get("minLength", 0) or (rules.get("minLength") and not value.strip()):
        raise ToolError(f"{name} must not be empty")
    if len(value) > rules.get("maxLength", math.inf):
        raise ToolError(f"{name} has {len(value):,} characters; at most {rules['maxLength']:,} are taken")


def _shown(value: Any) -> str:
    """Return a value in one short line without secrets; a list or an object is only named."""
    if isinstance(value, (list, dict)):
        return _WORDS["array" if isinstance(value, list) else "object"]
    text = repr(redact(value) if isinstance(value, str) else value)
    return text if len(text) <= _SHORT else text[:_SHORT] + "…"


def _usage(schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    named = [
        f"{name}{'' if name in required else '?'} ({rules.get('type', 'any')})"
        for name, rules in schema.get("properties", {}).items()
    ]
    return (", ".join(named) or "no arguments") + "."
