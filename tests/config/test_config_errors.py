"""Every mistake in a file is named with its line, its key, what is allowed, and what was probably meant."""
# ruff: noqa: E501 - the messages are asserted whole

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from leporello.config import Config
from leporello.config.load import check_text
from leporello.errors import ConfigError

FILE = Path("config.yaml")


def problems(text: str) -> list[str]:
    return [str(problem) for problem in check_text(text, file=FILE).problems]


def said(text: str) -> str:
    """Return the only problem of a text."""
    (problem,) = problems(text)
    return problem


def test_a_correct_text_has_no_problem() -> None:
    assert problems("compression:\n  threshold: 0.6\n") == []


class TestKeys:
    def test_misspelt_key(self) -> None:
        assert said("compression:\n  enabled: true\n  treshold: 0.5\n") == snapshot(
            "config.yaml, line 3, compression.treshold: this key is unknown. Did you mean compression.threshold?"
        )

    def test_misspelt_block(self) -> None:
        assert said("Compresion:\n  threshold: 0.5\n") == snapshot(
            "config.yaml, line 1, Compresion: there is no block and no engine of this name. Did you mean compression?"
        )

    def test_key_at_the_wrong_place(self) -> None:
        assert said("threshold: 0.5\n") == snapshot(
            "config.yaml, line 1, threshold: there is no block and no engine of this name. Did you mean compression.threshold?"
        )
        assert said("context:\n  protect_last_n: 5\n") == snapshot(
            "config.yaml, line 2, context.protect_last_n: this key is unknown. Did you mean compression.protect_last_n?"
        )

    def test_nothing_near(self) -> None:
        assert said("store:\n  qqqq: 1\n") == snapshot(
            "config.yaml, line 2, store.qqqq: this key is unknown. Known here: url."
        )
        assert said("zzzz:\n  a: 1\n") == snapshot(
            "config.yaml, line 1, zzzz: there is no block and no engine of this name. The blocks are model, context, compression, auxiliary, prompt_caching, plugins, store, lcm, gateway, windows, prices; an engine's own block is read when the engine is installed or chosen."
        )

    def test_the_nearest_engine(self, home: Path) -> None:
        (home / "plugins/context_engine/accordion").mkdir(parents=True)
        (home / "plugins/context_engine/accordion/plugin.yaml").touch()
        assert said("acordion: {a: 1}\n") == snapshot(
            "config.yaml, line 1, acordion: there is no block and no engine of this name. Did you mean accordion?"
        )

    def test_the_built_in_engine_has_no_block_of_its_name(self) -> None:
        assert said("compressor:\n  threshold: 0.5\n") == snapshot(
            "config.yaml, line 1, compressor: there is no block and no engine of this name. Did you mean compression?"
        )

    def test_keys_of_hermes_that_have_no_place_here(self) -> None:
        assert problems("compression:\n  protect_first_n: 3\n  summary_model: x\n") == snapshot(
            [
                "config.yaml, line 2, compression.protect_first_n: this key is unknown. The system prompt and the first exchange are always kept; remove this line.",
                "config.yaml, line 3, compression.summary_model: this key is unknown. Use auxiliary.compression.model.",
            ]
        )

    def test_a_provider_key_in_the_file(self) -> None:
        text = said("auxiliary:\n  compression:\n    api_key: sk-1234567890abcdefghij\n")
        assert text == snapshot(
            "config.yaml, line 3, auxiliary.compression.api_key: keys do not belong into this file. Set the environment variable OPENAI_API_KEY, ANTHROPIC_API_KEY, OPENROUTER_API_KEY, AUXILIARY_COMPRESSION_API_KEY instead."
        )
        assert "sk-1234567890abcdefghij" not in text

    def test_a_key_that_is_a_number(self) -> None:
        assert said("windows:\n  4: 100\n") == snapshot(
            'config.yaml, line 2, windows[4]: a key must be text. Put it into quotes: "4".'
        )
        assert said("model:\n  4: 100\n") == snapshot(
            'config.yaml, line 2, model[4]: a key must be text. Put it into quotes: "4".'
        )

    def test_a_key_that_is_a_list(self) -> None:
        assert said("? [a, b]\n: 1\n") == snapshot("config.yaml, line 1: a list cannot be a key. Use a text.")

    def test_merge_keys(self) -> None:
        assert said("model: &m {default: a}\nstore:\n  <<: *m\n") == snapshot(
            "config.yaml, line 3, store: merge keys (<<) are not understood here. Write the keys out."
        )

    def test_the_example_of_the_documentation_with_both_engines(self) -> None:
        text = 'context:\n  engine: "compressor"    # built in\n  engine: "lcm"           # plugin\n'
        assert said(text) == snapshot(
            "config.yaml, line 3, context.engine: this key is given twice. Keep one of the two lines, 2 or 3. (Hermes Agent's documentation shows both choices below each other; only one engine is active.)"
        )

    def test_a_repeated_block(self) -> None:
        assert said("store: {}\nmodel: {}\nstore: {}\n") == snapshot(
            "config.yaml, line 3, store: this key is given twice. Keep one of the two lines, 1 or 3."
        )


class TestValues:
    def test_window_with_a_unit(self) -> None:
        assert said("model:\n  context_length: 256K\n") == snapshot(
            'config.yaml, line 2, model.context_length: must be a whole number of at least 1, or null, not "256K". Write the number of tokens: 262144, or 256000, as the provider documents it.'
        )
        assert said("model:\n  context_length: 1M\n") == snapshot(
            'config.yaml, line 2, model.context_length: must be a whole number of at least 1, or null, not "1M". Write the number of tokens: 1048576, or 1000000, as the provider documents it.'
        )

    def test_number_with_separators(self) -> None:
        assert said("model:\n  context_length: '262,144'\n") == snapshot(
            'config.yaml, line 2, model.context_length: must be a whole number of at least 1, or null, not "262,144". Write 262144, without quotes.'
        )

    def test_window_of_nothing(self) -> None:
        assert said("model:\n  context_length: 0\n") == snapshot(
            "config.yaml, line 2, model.context_length: must be a whole number of at least 1, or null, not 0."
        )
        assert said("windows:\n  gpt-5.5: 1.5\n") == snapshot(
            "config.yaml, line 2, windows.gpt-5.5: must be a whole number of at least 1, not 1.5."
        )

    def test_percentages(self) -> None:
        assert said("compression:\n  threshold: 85\n") == snapshot(
            "config.yaml, line 2, compression.threshold: must be a number above 0 and at most 1, not 85. For 85 % write 0.85."
        )
        assert said("compression:\n  threshold: 85%\n") == snapshot(
            'config.yaml, line 2, compression.threshold: must be a number above 0 and at most 1, not "85%". Write 0.85.'
        )

    def test_out_of_range(self) -> None:
        assert said("compression:\n  threshold: 0\n") == snapshot(
            "config.yaml, line 2, compression.threshold: must be a number above 0 and at most 1, not 0."
        )
        assert said("compression:\n  target_ratio: 0.9\n") == snapshot(
            "config.yaml, line 2, compression.target_ratio: must be a number from 0.1 to 0.8, not 0.9."
        )
        assert said("compression:\n  protect_last_n: 0\n") == snapshot(
            "config.yaml, line 2, compression.protect_last_n: must be a whole number of at least 1, not 0."
        )
        assert said("compression:\n  deadline_seconds: .inf\n") == snapshot(
            "config.yaml, line 2, compression.deadline_seconds: must be a number above 0, not inf."
        )
        assert said("compression:\n  threshold: .nan\n") == snapshot(
            "config.yaml, line 2, compression.threshold: must be a number above 0 and at most 1, not nan."
        )

    def test_truth_in_other_words(self) -> None:
        assert said("compression:\n  enabled: yes\n") == snapshot(
            'config.yaml, line 2, compression.enabled: must be true or false, not "yes". Write true.'
        )
        assert said("compression:\n  enabled: 1\n") == snapshot(
            "config.yaml, line 2, compression.enabled: must be true or false, not 1."
        )

    def test_a_truth_is_no_number(self) -> None:
        assert said("compression:\n  max_calls: true\n") == snapshot(
            "config.yaml, line 2, compression.max_calls: must be a whole number of at least 1, not true."
        )

    def test_text_without_quotes(self) -> None:
        assert said("model:\n  default: 4\n") == snapshot(
            'config.yaml, line 2, model.default: must be text, or null, not 4. Put it into quotes: "4".'
        )

    def test_choices(self) -> None:
        assert said("prompt_caching:\n  cache_ttl: 2h\n") == snapshot(
            'config.yaml, line 2, prompt_caching.cache_ttl: must be "5m" or "1h", not "2h".'
        )

    def test_names(self) -> None:
        assert said("context:\n  engine: ../../etc\n") == snapshot(
            'config.yaml, line 2, context.engine: must be a name without spaces and slashes, not "../../etc".'
        )
        assert said("context:\n  engine:\n") == snapshot(
            "config.yaml, line 2, context.engine: must be a name without spaces and slashes, not empty."
        )

    def test_address(self) -> None:
        assert said("model:\n  base_url: localhost:8080\n") == snapshot(
            'config.yaml, line 2, model.base_url: must be an address that begins with http:// or https://, or null, not "localhost:8080".'
        )

    def test_lists(self) -> None:
        assert said("plugins:\n  enabled: mine\n") == snapshot(
            'config.yaml, line 2, plugins.enabled: must be a list of items, each a name without spaces and slashes, not "mine". Write it as a list: [mine].'
        )
        paths = "plugins:\n  paths:\n    - ok\n    - 5\n    - ''\n    - ~nobody-of-this-name/x\n"
        assert problems(paths) == snapshot(
            [
                "config.yaml, line 4, plugins.paths[1]: must be the path of a folder, not 5.",
                'config.yaml, line 5, plugins.paths[2]: must be the path of a folder, not "".',
                'config.yaml, line 6, plugins.paths[3]: must be the path of a folder, not "~nobody-of-this-name/x".',
            ]
        )

    def test_blocks(self) -> None:
        assert said("model: claude-sonnet-5\n") == snapshot(
            'config.yaml, line 1, model: must be a block with the keys default, provider, base_url, context_length, max_tokens, not "claude-sonnet-5". Write it as {default: claude-sonnet-5}.'
        )
        assert said("auxiliary: [compression]\n") == snapshot(
            "config.yaml, line 1, auxiliary: must be a block with the keys compression, not a list."
        )
        assert said("context: {engine: mine}\nmine: 5\n") == snapshot(
            "config.yaml, line 2, mine: must be a block of the engine's own keys, not 5."
        )

    def test_a_long_value_is_cut_and_a_key_is_not_shown(self) -> None:
        assert said(f"prompt_caching:\n  cache_ttl: {'x' * 500}\n") == snapshot(
            'config.yaml, line 2, prompt_caching.cache_ttl: must be "5m" or "1h", not "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…".'
        )
        assert said("prompt_caching:\n  cache_ttl: sk-1234567890abcdefghij\n") == snapshot(
            'config.yaml, line 2, prompt_caching.cache_ttl: must be "5m" or "1h", not something that looks like a key.'
        )

    def test_tags(self) -> None:
        assert said("model:\n  default: !env NAME\n") == snapshot(
            "config.yaml, line 2, model.default: the tag !env is not understood here. Write the plain value."
        )

    def test_a_tagged_file(self) -> None:
        assert (
            said("!mine\nmodel: {}\n")
            == "config.yaml, line 1: the tag !mine is not understood here. Write the plain value."
        )

    def test_a_number_that_cannot_be_read(self) -> None:
        assert said("model:\n  max_tokens: !!int many\n") == snapshot(
            "config.yaml, line 2, model.max_tokens: 'many' is not a number that can be read. Write it in plain digits."
        )

    def test_half_a_character(self) -> None:
        assert said('model:\n  default: "\\ud800"\n') == snapshot(
            "config.yaml, line 2, model.default: the text holds half a character. Write the character itself, without \\u."
        )


class TestText:
    def test_a_directive_that_the_parser_does_not_know(self) -> None:
        assert said("model:\n%YAML 9.9\n---\n  default: a\n") == "config.yaml: this is not YAML that can be read."

    def test_broken_yaml(self) -> None:
        assert said("model:\n  default: [a\n") == snapshot(
            "config.yaml, line 3: this is not valid YAML: expected ',' or ']', but got '<stream end>'."
        )
        assert said("model:\n  default: a: b\n") == snapshot(
            "config.yaml, line 2: this is not valid YAML: mapping values are not allowed here. Check the indentation, and put a value that contains ': ' into quotes."
        )
        assert said("model:\n\tdefault: a\n") == snapshot(
            "config.yaml, line 2: this is not valid YAML: found character '\\t' that cannot start any token. Indent with spaces, not with tabs."
        )
        assert said("model:\n    default: a\n  provider: b\n") == snapshot(
            "config.yaml, line 3: this is not valid YAML: expected <block end>, but found '<block mapping start>'. Check the indentation of this line and of the lines above it."
        )
        assert said("model:\n  default: 'a\n") == snapshot(
            "config.yaml, line 3: this is not valid YAML: found unexpected end of stream."
        )
        assert said("model: {}\n---\nmodel: {}\n") == snapshot(
            "config.yaml, line 2: this is not valid YAML: but found another document. Remove the line '---'; a configuration is one document."
        )
        assert said("model\nstore: {}\n") == snapshot(
            "config.yaml, line 2: this is not valid YAML: mapping values are not allowed here. Check the indentation, and put a value that contains ': ' into quotes."
        )
        assert said("model: *nobody\n") == snapshot(
            "config.yaml, line 1: this is not valid YAML: found undefined alias 'nobody'."
        )

    def test_no_mapping(self) -> None:
        assert said("- model\n") == snapshot(
            "config.yaml, line 1: the file holds a list instead of keys with values. Begin with a block, for example: context: {engine: compressor}"
        )
        assert said("model\n") == snapshot(
            "config.yaml, line 1: the file holds a single value instead of keys with values. Begin with a block, for example: context: {engine: compressor}"
        )

    def test_control_characters(self) -> None:
        assert said("model: {}\n# \x00\n") == snapshot(
            "config.yaml, line 2: the file holds a character that no YAML text may hold."
        )

    def test_bombs(self) -> None:
        assert said("model: &m [*m]\n") == snapshot(
            "config.yaml, line 1: there are too many values, or they are nested too deeply or refer to themselves."
        )
        assert said("[" * 1_000) == snapshot(
            "config.yaml, line 1: there are too many values, or they are nested too deeply or refer to themselves."
        )
        laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
        )
        assert said(laughs) == snapshot(
            "config.yaml, line 1: there are too many values, or they are nested too deeply or refer to themselves."
        )


class TestFiles:
    def load(self, file: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            Config.load(file)
        return str(caught.value).replace(str(file.parent), "…")

    def test_a_named_file_that_is_missing(self, tmp_path: Path) -> None:
        assert self.load(tmp_path / "config.yaml") == snapshot(
            "…/config.yaml: there is no such file. `leporello config path` names the default one."
        )

    def test_a_folder_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "config.yaml").mkdir()
        assert self.load(tmp_path / "config.yaml") == snapshot(
            "…/config.yaml: this is a folder, not a file. Name the file in it."
        )

    def test_a_folder_at_the_default_place(self, home: Path) -> None:
        (home / "config.yaml").mkdir(parents=True)
        with pytest.raises(ConfigError, match="this is a folder"):
            Config.load()

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        assert self.load(tmp_path / "file" / "config.yaml") == snapshot(
            "…/config.yaml: the file cannot be read: Not a directory."
        )

    def test_a_link_to_itself(self, tmp_path: Path) -> None:
        (tmp_path / "config.yaml").symlink_to(tmp_path / "config.yaml")
        assert self.load(tmp_path / "config.yaml") == snapshot(
            "…/config.yaml: the file cannot be read: Too many levels of symbolic links."
        )

    def test_not_utf8(self, tmp_path: Path) -> None:
        (tmp_path / "config.yaml").write_bytes("model:\n  default: Käse\n".encode("latin-1"))
        assert self.load(tmp_path / "config.yaml") == snapshot(
            "…/config.yaml, line 2: the file is not UTF-8 text. Save it as UTF-8."
        )

    def test_far_too_large(self, tmp_path: Path) -> None:
        (tmp_path / "config.yaml").write_bytes(b"#" * 100_001)
        assert self.load(tmp_path / "config.yaml") == snapshot(
            "…/config.yaml: the file is larger than 100,000 bytes, so it is no configuration."
        )

    def test_several_problems_are_told_at_once(self, tmp_path: Path) -> None:
        text = "compression:\n  treshold: 0.5\n  max_calls: 0\nstore: {}\nstore: {}\n"
        (tmp_path / "config.yaml").write_text(text)
        assert self.load(tmp_path / "config.yaml") == snapshot("""\
…/config.yaml: 3 problems:
  line 2, compression.treshold: this key is unknown. Did you mean compression.threshold?
  line 3, compression.max_calls: must be a whole number of at least 1, not 0.
  line 5, store: this key is given twice. Keep one of the two lines, 4 or 5.\
""")


def test_a_mapping_has_no_file_and_no_lines() -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_mapping({"compression": {"threshold": "a lot"}})
    assert str(caught.value) == snapshot(
        'configuration, compression.threshold: must be a number above 0 and at most 1, not "a lot".'
    )


def test_an_unknown_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEPORELLO_HOME", "~nobody-of-this-name/x")
    with pytest.raises(ConfigError) as caught:
        Config.load()
    assert str(caught.value) == snapshot(
        "configuration, LEPORELLO_HOME: the home folder of '~nobody-of-this-name/x' is not known. Set it to an absolute path."
    )


def test_the_texts_hold_what_a_reader_needs() -> None:
    """Line, key and remedy are in the error itself, not only in its text; a problem without them would fail here."""
    (problem,) = check_text("compression:\n  treshold: 1\n", file=FILE).problems
    assert (problem.file, problem.line, problem.key) == (FILE, 2, "compression.treshold")
    assert problem.hint == "Did you mean compression.threshold?"
