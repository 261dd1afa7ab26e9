"""Changing one key of a file touches nothing else, and what would be wrong is never written."""
# ruff: noqa: E501 - the messages are asserted whole

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot

from leporello.config import Config
from leporello.config.edit import get_value, set_value, unset_value
from leporello.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """\
# how I like it

compression:      # the built-in engine
    threshold :   0.40     # early
    # protect_last_n: 30

    target_ratio: 0.3

context: {engine: lcm}   # "lossless"
plugins:
  paths:
  - 'engines'   # mine
  - ~/other
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def refused(path: Path, key: str, value: str) -> str:
    """Return why a value is refused; the file must be as it was."""
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(ConfigError) as caught:
        set_value(path, key, value)
    assert (path.read_bytes() if path.exists() else None) == before
    return str(caught.value).replace(str(path.parent), "…")


class TestGet:
    def test_a_value_a_block_and_a_default(self, file: Path) -> None:
        config = Config.load(file)
        assert get_value(config, "compression.threshold") == 0.4
        assert get_value(config, "context") == {"engine": "lcm"}
        assert get_value(config, "compression.max_calls") == 24

    def test_names_with_dots(self) -> None:
        config = Config.from_mapping({"windows": {"openai/gpt-5.5": 272_000}})
        assert get_value(config, "windows.openai/gpt-5.5") == 272_000

    def test_an_engines_own_key(self) -> None:
        config = Config.from_mapping({"context": {"engine": "mine"}, "mine": {"a": {"b": 1}}})
        assert get_value(config, "mine.a.b") == 1

    @pytest.mark.parametrize(
        "key", ["compression.treshold", "nobody", "", "compression.threshold.x", "mine.b", "mine.a.b"]
    )
    def test_what_does_not_exist(self, key: str) -> None:
        config = Config.from_mapping({"context": {"engine": "mine"}, "mine": {"a": 1}})
        with pytest.raises(ConfigError):
            get_value(config, key)

    def test_the_nearest_key_is_named(self) -> None:
        with pytest.raises(ConfigError, match=r"Did you mean compression\.threshold\?"):
            get_value(Config(), "compression.treshold")


class TestSet:
    def test_only_the_value_changes(self, file: Path) -> None:
        set_value(file, "compression.threshold", "0.6")
        assert file.read_text() == TEXT.replace("0.40", "0.6")

    def test_a_new_key_joins_its_block(self, file: Path) -> None:
        set_value(file, "compression.max_calls", "3")
        assert file.read_text() == TEXT.replace("ratio: 0.3\n", "ratio: 0.3\n    max_calls: 3\n")

    def test_a_new_block_stands_at_the_end(self, file: Path) -> None:
        set_value(file, "auxiliary.compression.model", "small")
        assert file.read_text() == TEXT + "auxiliary:\n  compression:\n    model: small\n"

    def test_flow_style_stays(self, file: Path) -> None:
        set_value(file, "context.engine", "compressor")
        assert file.read_text() == TEXT.replace("lcm}", "compressor}")

    def test_a_list_is_replaced_as_a_whole(self, file: Path) -> None:
        set_value(file, "plugins.paths", "[a, 'b c']")
        assert file.read_text() == TEXT[: TEXT.index("  - 'eng")].replace("paths:\n", 'paths: [a, "b c"]\n')
        assert [path.name for path in Config.load(file).plugins.paths] == ["a", "b c"]

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("", "model:\n  default: x\n"),
            ("# mine", "# mine\nmodel:\n  default: x\n"),
            ("model:\n", "model:\n  default: x\n"),
            ("model: # main\n  # nothing yet\n", "model: # main\n  default: x\n  # nothing yet\n"),
            ("model: ~\n", "model: {default: x}\n"),
            ("model: {}\n", "model: {default: x}\n"),
            ("model: {provider: openai}\n", "model: {provider: openai, default: x}\n"),
            ("{model: {default: a}}", "{model: {default: x}}"),
            ("{store: {}}", "{store: {}, model: {default: x}}"),
            ("model:\n  default:\n  provider: openai\n", "model:\n  default: x\n  provider: openai\n"),
            ("model:\n  default: |\n    long\n  provider: openai\n", "model:\n  default: x\n  provider: openai\n"),
            ("model:\r\n  default: a\r\n", "model:\r\n  default: x\r\n"),
            ("store: {}\r\n", "store: {}\r\nmodel:\r\n  default: x\r\n"),
            ("\ufeffmodel: {default: a}\n", "\ufeffmodel: {default: x}\n"),
            ('"model" :\n  "default" : "a" # b\n', '"model" :\n  "default" : x # b\n'),
            ("model:\n  provider: openai", "model:\n  provider: openai\n  default: x\n"),
        ],
    )
    def test_layouts(self, tmp_path: Path, before: str, after: str) -> None:
        path = tmp_path / "config.yaml"
        path.write_text(before, encoding="utf-8", newline="")
        set_value(path, "model.default", "x")
        assert path.read_bytes() == after.encode()

    @pytest.mark.parametrize(
        "before",
        [
            "model: &m {default: a}\nauxiliary: {compression: {model: &n b}}\nstore: {url: *n}\n",
            "model: {}\n...\n",
        ],
    )
    def test_a_layout_that_is_not_understood_is_left_alone(self, tmp_path: Path, before: str) -> None:
        path = tmp_path / "config.yaml"
        path.write_text(before)
        key = "auxiliary.compression.model" if "*n" in before else "store.url"
        assert "too unusual for this command. Change it in an editor" in refused(path, key, "x")

    def test_names_with_dots(self, file: Path) -> None:
        set_value(file, "windows.openai/gpt-5.5", "272000")
        set_value(file, "windows.qwen/qwen3:free", "40960")
        assert file.read_text() == TEXT + 'windows:\n  openai/gpt-5.5: 272000\n  "qwen/qwen3:free": 40960\n'

    def test_an_engines_own_key(self, file: Path) -> None:
        set_value(file, "context.engine", "notes")
        set_value(file, "notes.leaf.tokens", "5")
        assert Config.load(file).block("notes") == {"leaf": {"tokens": 5}}

    def test_the_default_file_is_made_for_its_owner_only(self, home: Path) -> None:
        set_value(None, "context.engine", "lcm")
        assert (home / "config.yaml").read_text() == "context:\n  engine: lcm\n"
        assert [oct(path.stat().st_mode & 0o777) for path in (home, home / "config.yaml")] == ["0o700", "0o600"]

    def test_the_mode_stays(self, file: Path) -> None:
        file.chmod(0o640)
        set_value(file, "compression.threshold", "0.6")
        assert oct(file.stat().st_mode & 0o777) == "0o640"

    def test_a_link_is_followed(self, file: Path, tmp_path: Path) -> None:
        link = tmp_path / "link.yaml"
        link.symlink_to(file)
        set_value(link, "compression.threshold", "0.6")
        assert link.is_symlink()
        assert Config.load(file).compression.threshold == 0.6

    def test_nothing_else_is_left_in_the_folder(self, file: Path) -> None:
        set_value(file, "compression.threshold", "0.6")
        refused(file, "compression.threshold", "7")
        assert [path.name for path in file.parent.iterdir()] == ["config.yaml"]


class TestRefused:
    def test_wrong_values(self, file: Path) -> None:
        assert refused(file, "compression.threshold", "7") == snapshot(
            "configuration, compression.threshold: must be a number above 0 and at most 1, not 7. For 7 % write 0.07."
        )
        assert refused(file, "model.context_length", "256K") == snapshot(
            'configuration, model.context_length: must be a whole number of at least 1, or null, not "256K". Write the number of tokens: 262144, or 256000, as the provider documents it.'
        )
        assert refused(file, "compression", "5") == snapshot(
            "configuration, compression: must be a block with the keys enabled, threshold, target_ratio, masked_zone, protect_last_n, codex_gpt55_autoraise, deadline_seconds, max_calls, not 5."
        )

    def test_wrong_keys(self, file: Path) -> None:
        assert refused(file, "compression.treshold", "0.5") == snapshot(
            "configuration, compression.treshold: this key is unknown. Did you mean compression.threshold?"
        )
        assert refused(file, "compression.threshold.deep", "0.5") == snapshot(
            "configuration, compression.threshold.deep: this key is unknown. threshold has no keys."
        )
        assert refused(file, "nobody.x", "1") == snapshot(
            "configuration, nobody: there is no block and no engine of this name. The blocks are model, context, compression, auxiliary, prompt_caching, plugins, store, lcm, gateway, windows, prices; an engine's own block is read when the engine is installed or chosen."
        )

    def test_a_value_that_is_no_yaml(self, file: Path) -> None:
        assert refused(file, "model.default", "[a") == snapshot(
            "configuration, model.default: the value is not valid YAML. Put it into quotes: '\"…\"'"
        )

    def test_below_a_single_value_of_an_engine(self, file: Path) -> None:
        set_value(file, "context.engine", "notes")
        set_value(file, "notes.a", "1")
        assert refused(file, "notes.a.b", "1") == snapshot("configuration, notes.a.b: a is not a block in this file.")

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("openai_api_key", "x"),
            ("model.api_key", "x"),
            ("lcm.token", "x"),
            ("model.default", "sk-1234567890abcdefghij"),
            ("plugins.enabled", "[sk-1234567890abcdefghij]"),
            ("lcm", "{api_key: x}"),
        ],
    )
    def test_keys_of_providers(self, file: Path, key: str, value: str) -> None:
        text = refused(file, key, value)
        assert "keys do not belong into this file; nothing was written. Set the environment variable" in text
        assert "sk-1" not in text

    def test_the_variable_of_the_named_provider(self, file: Path) -> None:
        assert refused(file, "anthropic_api_key", "x") == snapshot(
            "configuration, anthropic_api_key: keys do not belong into this file; nothing was written. Set the environment variable ANTHROPIC_API_KEY instead."
        )

    def test_names_that_only_sound_like_keys(self, file: Path) -> None:
        set_value(file, "model.max_tokens", "100")
        set_value(file, "model.default", "xai-grok-4-fast-reasoning")

    def test_another_problem_in_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "config.yaml"
        path.write_text("context:\n  engine: compressor\n  engine: lcm\n")
        assert "Keep one of the two lines, 2 or 3" in refused(path, "compression.threshold", "0.6")
        path.write_text("context: [\n")
        assert "not valid YAML" in refused(path, "compression.threshold", "0.6")

    def test_a_problem_can_be_repaired(self, tmp_path: Path) -> None:
        path = tmp_path / "config.yaml"
        path.write_text("compression: {threshold: 7}\n")
        set_value(path, "compression.threshold", "0.7")
        assert Config.load(path).compression.threshold == 0.7

    def test_a_file_in_place_of_the_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(ConfigError, match="Not a directory"):
            set_value(tmp_path / "file" / "config.yaml", "context.engine", "lcm")

    def test_a_folder_that_takes_no_files(self) -> None:
        with pytest.raises(ConfigError, match=r"cannot be written: .*\. It is unchanged\."):
            set_value("/proc/self/config.yaml", "context.engine", "lcm")


class TestUnset:
    @pytest.mark.parametrize(
        ("before", "key", "after"),
        [
            ("model:\n  default: a # b\n  provider: c\n", "model.default", "model:\n  provider: c\n"),
            ("model:\n  provider: c\n  default: a", "model.default", "model:\n  provider: c\n"),
            ("model:\n  default: a\nstore: {}\n", "model.default", "store: {}\n"),
            ("model: # main\n  default: a\n# end\n", "model.default", "model: # main\n# end\n"),
            ("auxiliary:\n  compression:\n    model: a\n", "auxiliary.compression.model", ""),
            ("model: {default: a}\n", "model.default", "model: {}\n"),
            ("model: {default: a, provider: b}\n", "model.default", "model: {provider: b}\n"),
            ("model: {provider: b, default: a}\n", "model.default", "model: {provider: b}\n"),
            ("model:\n  default: a\n\n# kept\nstore: {}\n", "model", "\n# kept\nstore: {}\n"),
            ("plugins:\n  paths:\n  - a\n  - b # c\nstore: {}\n", "plugins.paths", "store: {}\n"),
            ("model:\n  default:\nstore: {}\n", "model.default", "store: {}\n"),
            ("model:\n  default:\n# kept\nstore: {}\n", "model.default", "# kept\nstore: {}\n"),
            ("model: {default: , provider: b}\n", "model.default", "model: {provider: b}\n"),
            ("model: {provider: b, default: }\n", "model.default", "model: {provider: b }\n"),
            ("plugins:\n  paths:\n  -\n  -\nstore: {}\n", "plugins.paths", "store: {}\n"),
            ("compression:\n  treshold: 1\nstore: {}\n", "compression.treshold", "store: {}\n"),
            ("windows:\n  gpt-5.5: 1\n  x: 2\n", "windows.gpt-5.5", "windows:\n  x: 2\n"),
        ],
    )
    def test_layouts(self, tmp_path: Path, before: str, key: str, after: str) -> None:
        path = tmp_path / "config.yaml"
        path.write_text(before)
        assert unset_value(path, key) is True
        assert path.read_text() == after

    def test_what_is_not_there(self, file: Path, tmp_path: Path) -> None:
        assert unset_value(file, "store.url") is False
        assert unset_value(tmp_path / "none.yaml", "store.url") is False
        assert not (tmp_path / "none.yaml").exists()
        assert file.read_text() == TEXT

    def test_an_unknown_key(self, file: Path) -> None:
        with pytest.raises(ConfigError, match=r"Did you mean store\.url"):
            unset_value(file, "store.uri")
