"""The keys of config.yaml, read off the model: for the reference page, `config show` and the error messages."""

from __future__ import annotations

import types
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from leporello.config.model import Allowed, Config, ConfigBlock


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key: its dotted name, default, what it may be (in words that follow "must be"), and what it means."""

    name: str
    default: Any
    allowed: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A type without its wrappings: the bare type, what was annotated on it, and whether null is allowed."""

    bare: Any
    notes: tuple[Any, ...] = ()
    nullable: bool = False


def keys() -> tuple[Key, ...]:
    """List every key that is not a block, in the order of the model."""
    return tuple(_keys_of(Config, ()))


def _keys_of(block: type[ConfigBlock], at: tuple[str, ...]) -> list[Key]:
    found: list[Key] = []
    for name, info in block.model_fields.items():
        kind = _kind_of_field(info)
        if is_block(kind):
            found += _keys_of(kind.bare, (*at, name))
        else:
            key = ".".join((*at, name))
            found.append(Key(name=key, default=info.default, allowed=allowed(kind), meaning=info.description or ""))
    return found


def dotted(location: tuple[Any, ...]) -> str:
    """Write a location as people do: plugins.paths[0]."""
    text = "".join(f"[{part}]" if type(part) is int else f".{part}" for part in location)
    return text.removeprefix(".")


def split_key(key: str) -> tuple[str, ...]:
    """Split a dotted key; behind a mapping such as `windows` the rest is one name, dots included."""
    parts = tuple(key.split("."))
    for length in range(1, len(parts)):
        kind = kind_at(parts[:length])
        if kind is not None and kind.bare is dict:
            return (*parts[:length], ".".join(parts[length:]))
    return parts


def kind_at(location: tuple[Any, ...]) -> Kind | None:
    """Return the type of what stands at a location; None when the model knows no such place."""
    kind = Kind(bare=Config)
    for part in location:
        inner = _inside(kind, part)
        if inner is None:
            return None
        kind = inner
    return kind


def names_at(location: tuple[Any, ...]) -> list[str]:
    """Name the keys of the block at a location; none when it is no block."""
    kind = kind_at(location)
    return list(kind.bare.model_fields) if kind is not None and is_block(kind) else []


def is_block(kind: Kind) -> bool:
    """Tell whether this is a block with keys of its own."""
    return isinstance(kind.bare, type) and issubclass(kind.bare, ConfigBlock)


def allowed(kind: Kind) -> str:
    """Say what a value of this type may be."""
    return _allowed_without_null(kind) + (", or null" if kind.nullable else "")


def _allowed_without_null(kind: Kind) -> str:
    said = [note.text for note in kind.notes if isinstance(note, Allowed)]
    if said:
        return str(said[0])
    if is_block(kind):
        return "a block with the keys " + ", ".join(kind.bare.model_fields)
    if get_origin(kind.bare) is Literal:
        return " or ".join(f'"{choice}"' for choice in get_args(kind.bare))
    if kind.bare is list:
        return "a list of items, each " + allowed(kind.notes[0])
    if kind.bare is dict:
        return "names, each with " + allowed(kind.notes[0])
    return _WORDS[kind.bare] + _range(kind.notes)


_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}


def _range(notes: tuple[Any, ...]) -> str:
    above = next((note.gt for note in notes if isinstance(note, Gt)), None)
    least = next((note.ge for note in notes if isinstance(note, Ge)), None)
    most = next((note.le for note in notes if isinstance(note, Le)), None)
    if least is not None and most is not None:
        return f" from {least} to {most}"
    low = f" above {above}" if above is not None else f" of at least {least}" if least is not None else ""
    return low + (f" and at most {most}" if most is not None else "")


def _inside(kind: Kind, part: Any) -> Kind | None:
    if is_block(kind):
        info = kind.bare.model_fields.get(part)
        return None if info is None else _kind_of_field(info)
    inner = kind.notes[0] if kind.bare in {list, dict} else None
    return inner if isinstance(inner, Kind) else None


def _kind_of_field(info: FieldInfo) -> Kind:
    return _kind(info.annotation, tuple(info.metadata))


def _kind(annotation: Any, notes: tuple[Any, ...] = ()) -> Kind:
    """Take Annotated, `| None`, list and dict apart; the kind of the items is the first note of the latter two."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(args[0], (*_flat(args[1:]), *notes))
    if origin in {Union, types.UnionType} and types.NoneType in args:
        inner = _kind(next(arg for arg in args if arg is not types.NoneType), notes)
        return Kind(bare=inner.bare, notes=inner.notes, nullable=True)
    if origin in {list, dict}:
        return Kind(bare=origin, notes=(_kind(args[-1]), *notes))
    return Kind(bare=annotation, notes=notes)


def _flat(notes: tuple[Any, ...]) -> list[Any]:
    return [item for note in notes for item in (note.metadata if isinstance(note, FieldInfo) else [note])]
