"""What a configuration holds, and where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import ValidationError

from leporello.config import Config
from leporello.config.fields import keys
from leporello.errors import ConfigError


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def engine_folder(folder: Path) -> Path:
    write(folder / "plugin.yaml", f"name: {folder.name}\n")
    return folder


def test_every_default() -> None:
    assert {key.name: key.default for key in keys()} == snapshot(
        {
            "model.default": None,
            "model.provider": "auto",
            "model.base_url": None,
            "model.context_length": None,
            "model.max_tokens": None,
            "context.engine": "compressor",
            "compression.enabled": True,
            "compression.threshold": 0.5,
            "compression.target_ratio": 0.2,
            "compression.masked_zone": 0.10,
            "compression.protect_last_n": 20,
            "compression.codex_gpt55_autoraise": True,
            "compression.deadline_seconds": 120.0,
            "compression.max_calls": 24,
            "auxiliary.compression.model": None,
            "auxiliary.compression.provider": "auto",
            "auxiliary.compression.base_url": None,
            "auxiliary.compression.context_length": None,
            "auxiliary.compression.timeout_seconds": 60.0,
            "prompt_caching.cache_ttl": "5m",
            "prompt_caching.strategy": "system_and_3",
            "plugins.enabled": [],
            "plugins.paths": [],
            "store.url": None,
            "lcm.threshold": "auto",
            "lcm.tail": 0.15,
            "lcm.masked_zone": 0.05,
            "lcm.leaf_tokens": None,
            "lcm.fan_in": 4,
            "lcm.summary_share": 0.2,
            "lcm.background": True,
            "lcm.deadline_seconds": 120.0,
            "lcm.max_calls": 24,
            "lcm.scope": "conversation",
            "lcm.redact": True,
            "lcm.ignore_sessions": [],
            "lcm.store": None,
            "gateway.api_keys": {},
            "gateway.upstreams.openai.base_url": "https://api.openai.com/v1",
            "gateway.upstreams.openai.api_key_env": "OPENAI_API_KEY",
            "gateway.upstreams.openai.pass_client_key": False,
            "gateway.upstreams.anthropic.base_url": "https://api.anthropic.com",
            "gateway.upstreams.anthropic.api_key_env": "ANTHROPIC_API_KEY",
            "gateway.upstreams.anthropic.pass_client_key": False,
            "gateway.limits.messages": 10000,
            "gateway.limits.values": 200000,
            "gateway.limits.answer_bytes": 67108864,
            "gateway.limits.body_bytes": 33554432,
            "gateway.limits.concurrency": 64,
            "gateway.limits.seconds": 600.0,
            "gateway.processes": 8,
            "gateway.expire_minutes": 60.0,
            "gateway.tools": False,
            "gateway.cors_origins": [],
            "gateway.page_actions": False,
            "gateway.system": None,
            "gateway.workspace": None,
            "windows": {},
            "prices": {},
        }
    )


def test_the_defaults_pass_their_own_rules() -> None:
    """A planted default out of range, such as 0 for protect_last_n, would not."""
    assert Config.from_mapping(Config().model_dump()) == Config()
    with pytest.raises(ConfigError):
        Config.from_mapping({"compression": {**Config().compression.model_dump(), "protect_last_n": 0}})


def test_every_key_has_a_meaning() -> None:
    assert [key.name for key in keys() if not key.meaning.endswith((".", ","))] == []


def test_without_a_file_the_defaults_are_in_force_and_nothing_is_created(home: Path) -> None:
    config = Config.load()
    assert (config.compression.threshold, config.path, config.home) == (0.5, None, home)
    assert not home.exists()


def test_the_file_at_home_is_read(home: Path) -> None:
    file = write(home / "config.yaml", "compression:\n  threshold: 0.7\n")
    config = Config.load()
    assert (config.compression.threshold, config.path) == (0.7, file)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "compression:\n", "windows:\nplugins:\n  enabled:\n"])
def test_a_file_that_says_nothing_means_defaults(tmp_path: Path, text: str) -> None:
    assert Config.load(write(tmp_path / "config.yaml", text)).model_dump() == Config().model_dump()


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    file = write(tmp_path / "config.yaml", "\ufeffcontext:\r\n  engine: lcm\r\n")
    assert Config.load(file).context.engine == "lcm"


def test_an_empty_text_is_null_where_null_is_allowed() -> None:
    config = Config.from_mapping({"model": {"base_url": "", "default": ""}, "store": {"url": ""}})
    assert (config.model.base_url, config.model.default, config.store.url) == (None, None, None)


def test_coerce_takes_every_form(home: Path) -> None:
    file = write(home / "config.yaml", "context: {engine: lcm}\n")
    ready = Config.from_mapping({"context": {"engine": "mine"}})
    assert Config.coerce(ready) is ready
    assert Config.coerce({"context": {"engine": "mine"}}).context.engine == "mine"
    assert [Config.coerce(value).context.engine for value in (None, file, str(file))] == ["lcm"] * 3


def test_coerce_says_what_it_takes() -> None:
    value: Any = 5
    with pytest.raises(ConfigError, match="a path, a mapping or a Config, not a int"):
        Config.coerce(value)


def test_a_configuration_cannot_be_changed() -> None:
    config = Config()
    with pytest.raises(ValidationError, match="frozen"):
        config.compression = Config().compression
    with pytest.raises(ValidationError, match="frozen"):
        config.compression.threshold = 0.9


def test_plugin_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "there" / "config.yaml", "plugins:\n  paths: [engines, ../up, ~/mine, /abs]\n")
    expected = [tmp_path / "there/engines", tmp_path / "up", Path.home() / "mine", Path("/abs")]
    assert Config.load(file).plugins.paths == expected


def test_plugin_paths_of_a_mapping_start_at_the_current_folder() -> None:
    assert Config.from_mapping({"plugins": {"paths": ["engines"]}}).plugins.paths == [Path.cwd() / "engines"]


def test_the_block_of_the_chosen_engine_is_handed_over_as_it_is(tmp_path: Path) -> None:
    text = "context: {engine: mine}\nmine:\n  depth: 3\n  nested: {a: [1, x, null]}\n"
    config = Config.load(write(tmp_path / "config.yaml", text))
    assert config.block("mine") == {"depth": 3, "nested": {"a": [1, "x", None]}}
    assert config.engine_blocks() == ("mine",)


def test_a_block_is_a_copy() -> None:
    config = Config.from_mapping({"context": {"engine": "mine"}, "mine": {"list": [1]}})
    config.block("mine")["list"].append(2)
    assert config.block("mine") == {"list": [1]}


def test_block_knows_our_own_blocks_and_says_nothing_about_others() -> None:
    assert Config().block("context") == {"engine": "compressor"}
    assert Config().block("windows") == {}
    assert Config().block("nobody") == {}


def test_an_engine_at_home_has_a_block_before_it_is_chosen(home: Path) -> None:
    engine_folder(home / "plugins/context_engine/waiting")
    assert Config.from_mapping({"waiting": {"a": 1}}).block("waiting") == {"a": 1}


def test_an_engine_in_a_named_folder_has_a_block(tmp_path: Path) -> None:
    """Either the folder of engines is named, or the engine's own folder; a folder without a manifest is none."""
    engine_folder(tmp_path / "engines/one")
    engine_folder(tmp_path / "two")
    (tmp_path / "engines/notes").mkdir()
    file = write(tmp_path / "config.yaml", "plugins: {paths: [engines, two]}\none: {a: 1}\ntwo: {b: 2}\n")
    assert (Config.load(file).block("one"), Config.load(file).block("two")) == ({"a": 1}, {"b": 2})
    write(file, "plugins: {paths: [engines, two]}\nnotes: {a: 1}\n")
    with pytest.raises(ConfigError, match="no block and no engine"):
        Config.load(file)


def test_an_enabled_plugin_has_a_block() -> None:
    assert Config.from_mapping({"plugins": {"enabled": ["general"]}, "general": None}).block("general") == {}


def test_looking_for_engines_runs_nothing(home: Path, tmp_path: Path) -> None:
    folder = engine_folder(home / "plugins/context_engine/loud")
    write(folder / "__init__.py", f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    Config.from_mapping({"loud": {}})
    assert not (tmp_path / "ran").exists()


def test_defaults_and_mappings_need_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEPORELLO_HOME", "~nobody-of-this-name/x")
    assert Config.from_mapping({"context": {"engine": "mine"}}).context.engine == "mine"
    with pytest.raises(ConfigError, match="the home folder"):
        _ = Config().home


def test_windows_may_have_dots_and_slashes_in_their_names() -> None:
    windows = {"openai/gpt-5.5": 272_000, "my.model": 8_192}
    assert Config.from_mapping({"windows": windows}).windows == windows
