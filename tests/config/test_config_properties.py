"""Rules that hold for every configuration, every junk and every change."""

from __future__ import annotations

import difflib
import io
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st
from ruamel.yaml import YAML

from leporello.config import Config
from leporello.config.edit import get_value, set_value, unset_value
from leporello.config.layout import inline
from leporello.config.load import check_text
from leporello.config.source import parse_value
from leporello.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,12}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
tokens = st.integers(1, 10**9)
seconds = st.floats(1e-9, 1e12)
dollars = st.floats(0, 1e6)
addresses = st.builds("http://{}:{}/v1".format, names, st.integers(1, 65535))

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "model.default": texts | st.none(),
    "model.provider": names,
    "model.base_url": addresses | st.none(),
    "model.context_length": tokens | st.none(),
    "model.max_tokens": tokens | st.none(),
    "context.engine": names,
    "compression.enabled": st.booleans(),
    "compression.threshold": st.floats(1e-6, 1),
    "compression.target_ratio": st.floats(0.1, 0.8),
    "compression.masked_zone": st.floats(0, 0.8),
    "compression.protect_last_n": tokens,
    "compression.codex_gpt55_autoraise": st.booleans(),
    "compression.deadline_seconds": seconds,
    "compression.max_calls": tokens,
    "auxiliary.compression.model": texts | st.none(),
    "auxiliary.compression.provider": st.sampled_from(["auto", "main", "openai", "anthropic", "openrouter"]),
    "auxiliary.compression.base_url": addresses | st.none(),
    "auxiliary.compression.context_length": tokens | st.none(),
    "auxiliary.compression.timeout_seconds": seconds,
    "prompt_caching.cache_ttl": st.sampled_from(["5m", "1h"]),
    "prompt_caching.strategy": st.sampled_from(["system_and_3", "planner"]),
    "store.url": texts | st.none(),
    "lcm.threshold": st.just("auto") | st.floats(1e-6, 1),
    "lcm.tail": st.floats(1e-6, 0.8),
    "lcm.masked_zone": st.floats(0, 0.8),
    "lcm.leaf_tokens": st.integers(256, 10**9) | st.none(),
    "lcm.fan_in": st.integers(2, 32),
    "lcm.summary_share": st.floats(1e-6, 0.8),
    "lcm.background": st.booleans(),
    "lcm.deadline_seconds": seconds,
    "lcm.max_calls": tokens,
    "lcm.scope": st.sampled_from(["conversation", "owner"]),
    "lcm.redact": st.booleans(),
    "lcm.store": texts | st.none(),
    "gateway.upstreams.openai.base_url": addresses,
    "gateway.upstreams.openai.api_key_env": texts | st.none(),
    "gateway.upstreams.openai.pass_client_key": st.sampled_from([False, "always"]),
    "gateway.upstreams.anthropic.base_url": addresses,
    "gateway.upstreams.anthropic.api_key_env": texts | st.none(),
    "gateway.upstreams.anthropic.pass_client_key": st.sampled_from([False, "always"]),
    "gateway.limits.body_bytes": st.integers(1024, 10**12),
    "gateway.limits.messages": st.integers(1, 10**9),
    "gateway.limits.values": st.integers(1_000, 10**9),
    "gateway.limits.answer_bytes": st.integers(1024, 10**12),
    "gateway.limits.concurrency": tokens,
    "gateway.limits.seconds": seconds,
    "gateway.processes": st.integers(1, 64),
    "gateway.expire_minutes": seconds,
    "gateway.tools": st.booleans(),
    "gateway.system": texts | st.none(),
}
COLLECTIONS: dict[str, st.SearchStrategy[Any]] = {
    "plugins.enabled": st.lists(names, max_size=3),
    "lcm.ignore_sessions": st.lists(texts, max_size=3),
    "plugins.paths": st.lists(st.builds("/{}/{}".format, names, names), max_size=3),
    "gateway.page_actions": st.booleans(),
    "gateway.cors_origins": st.lists(st.builds("https://{}.example".format, names), max_size=3),
    "gateway.workspace": st.builds("/{}/{}".format, names, names) | st.none(),
    "gateway.api_keys": st.dictionaries(names, st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True), max_size=2),
    "windows": st.dictionaries(texts, tokens, max_size=3),
    "prices": st.dictionaries(
        texts,
        st.fixed_dictionaries({"input": dollars, "output": dollars}, optional={"cache_read": dollars}),
        max_size=3,
    ),
}


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Turn dotted keys into blocks."""
    whole: dict[str, Any] = {}
    for key, value in values.items():
        *blocks, last = key.split(".")
        block = whole
        for name in blocks:
            block = block.setdefault(name, {})
        block[last] = value
    return whole


mappings = st.fixed_dictionaries({}, optional={**SCALARS, **COLLECTIONS}).map(nested)


def block_style(mapping: dict[str, Any], *, indent: int = 2) -> str:
    stream = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.width = False, 10_000
    # This writer takes U+0085 for the end of a line and loses it, unless it escapes what is not ASCII.
    yaml.allow_unicode = "\x85" not in json.dumps(mapping, ensure_ascii=False)
    yaml.map_indent = indent
    yaml.dump(mapping, stream)
    return stream.getvalue()


def test_the_strategies_know_every_key() -> None:
    """A key that is added to the model must be added here, or the properties below would not see it."""
    from leporello.config.fields import keys

    assert {key.name for key in keys()} == {*SCALARS, *COLLECTIONS}


@pytest.mark.slow
@settings(deadline=None)
@given(mappings, st.sampled_from([inline, block_style]))
def test_what_is_written_is_what_is_read(mapping: dict[str, Any], write: Callable[[dict[str, Any]], str]) -> None:
    from_text = check_text(write(mapping), file=Path("config.yaml")).result()
    assert from_text.model_dump() == Config.from_mapping(mapping).model_dump()


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(values)
def test_one_line_of_yaml_holds_any_value(value: Any) -> None:
    written = inline(value)
    assert "\n" not in written
    assert parse_value(written, key="any") == value


CHARACTERS = "ab:-[]{}#&*!|>'\"%@`,? \n\t\r0129.eE_x~<=/\\\x00\x85\u2028é\ufeff"
MARKS = [
    "\n",
    "\n  ",
    ": ",
    "- ",
    "&a ",
    "*a",
    "<<: ",
    "---\n",
    "...",
    "%YAML 1.1\n",
    '"\\ud800"',
    "!!int ",
    "!!set ",
    "!x ",
]
WORDS = ["model", "context", "engine", "windows", "plugins", "paths", "compression", "threshold", "lcm", "null", "1e5"]
yaml_pieces = st.sampled_from([*CHARACTERS, *MARKS, *WORDS])
junk = st.binary(max_size=60) | st.lists(yaml_pieces, max_size=25).map(lambda pieces: "".join(pieces).encode())


def assert_loads_or_explains(load: Callable[[Path], object], data: bytes) -> None:
    """Junk is either a configuration or a ConfigError with a text; anything else escapes as it is."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        Path(file.name).write_bytes(data)
        try:
            load(Path(file.name))
        except ConfigError as error:
            str(error).encode()


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(junk)
def test_junk_never_ends_in_anything_but_a_config_error(data: bytes) -> None:
    assert_loads_or_explains(Config.load, data)


def test_planted_a_loader_that_lets_the_parser_speak_is_caught() -> None:
    def careless(path: Path) -> object:
        return Config.from_mapping(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))

    with pytest.raises(Exception, match="expected ',' or ']'"):
        assert_loads_or_explains(careless, b"[a")


noise = st.sampled_from(["", "# a comment", "   # indented", "#", "#: {"])


@st.composite
def files(draw: st.DrawFn) -> str:
    """A block-style file with comments and blank lines between its lines, and any line ends."""
    lines = block_style(draw(mappings), indent=draw(st.sampled_from([2, 4]))).splitlines()
    lines = [] if lines == ["{}"] else lines
    # A comment between the lines of one text would end it: texts with line breaks stay together.
    mixed = [
        part for line in lines for part in ([draw(noise), line] if _is_whole(line) and draw(st.booleans()) else [line])
    ]
    return draw(st.sampled_from(["\n", "\r\n"])).join([*mixed, draw(noise)])


def _is_whole(line: str) -> bool:
    return line.rstrip().endswith(":") or line.lstrip().startswith(
        ("- ", *[f"{key.rpartition('.')[2]}:" for key in SCALARS])
    )


def assert_only_this_line_changed(before: str, after: str, key: str) -> None:
    """At most one line went away, it held the key, and what came is the key and the blocks it needs."""
    leaf = key.rpartition(".")[2]
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    difference = list(difflib.ndiff([o.rstrip("\r\n") for o in old], [n.rstrip("\r\n") for n in new]))
    gone = [line[2:] for line in difference if line.startswith("- ")]
    came = [line[2:] for line in difference if line.startswith("+ ")]
    assert len(gone) <= 1
    assert all(line.strip().startswith((leaf, f'"{leaf}"')) for line in gone)
    assert len(came) <= len(key.split("."))
    assert came == [] or came[-1].strip().startswith(leaf)
    assert {line[len(line.rstrip("\r\n")) :] for line in new[:-1]} <= {
        line[len(line.rstrip("\r\n")) :] for line in old
    } | {"\n"}


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data(), files(), st.sampled_from(sorted(SCALARS)))
def test_set_then_get_and_every_other_line_stays(data: st.DataObject, text: str, key: str) -> None:
    value = data.draw(SCALARS[key])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        file.write_bytes(text.encode())
        before = Config.load(file).model_dump()
        assert set_value(file, key, inline(value)) == value
        after = Config.load(file)
        assert get_value(after, key) == (value if value != "" else None)
        assert_only_this_line_changed(text, file.read_bytes().decode(), key)
        assert unset_value(file, key)
        assert comments_of(file.read_bytes().decode()) == comments_of(text)
        assert Config.load(file).model_dump() == Config.from_mapping(without(before, key)).model_dump()


def comments_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.lstrip().startswith("#")]


def without(dump: dict[str, Any], key: str) -> dict[str, Any]:
    *blocks, last = key.split(".")
    block = dump
    for name in blocks:
        block = block[name]
    del block[last]
    return dump


def test_planted_an_editor_that_writes_the_whole_file_anew_is_caught() -> None:
    text = "compression:   # why\n    threshold:   0.4\n    max_calls: 3\n"
    yaml = YAML()
    tree = yaml.load(text)
    tree["compression"]["threshold"] = 0.6
    stream = io.StringIO()
    yaml.dump(tree, stream)
    with pytest.raises(AssertionError):
        assert_only_this_line_changed(text, stream.getvalue(), "threshold")
    assert_only_this_line_changed(text, text.replace("0.4", "0.6"), "threshold")
