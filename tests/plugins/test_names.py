"""Which of several engines with one name is used, what is said about it, and whose a block of config.yaml is."""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from leporello import Config, LCMEngine, Session, load_engine
from leporello.config.engines import SHIPPED
from leporello.errors import ConfigError, PluginWarning
from leporello.plugins import EngineSource
from leporello.plugins.enabled import EnabledPlugins, survey
from leporello.plugins.hermes.host import load_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.plugins import Plugins

REGISTER = """
def register(ctx):
    ctx.register_context_engine(Engine(context_length=200_000))
"""
REGISTER_CLASS_WITH_PROPERTY = """
class Quiet(Engine):
    @property
    def name(self):
        return "lcm"

def register(ctx):
    ctx.register_context_engine(Quiet)
"""
COUNTS = """
import pathlib

def register(ctx):
    with (pathlib.Path(__file__).parent / "runs").open("a") as file:
        file.write("run\\n")
    engine = Engine()
    ctx.register_context_engine(engine)
    ctx.register_command("whose", lambda arguments: str(id(engine)))
    ctx.register_hook("x", print)
"""
PLACES = ("plugins.paths", "home", "plugin", "shipped")


class Four:
    """Engines called `lcm` in every place that one can be in, from the weakest to the strongest."""

    def __init__(self, plugins: Plugins, tmp_path: Path) -> None:
        self.plugins = plugins
        self.tmp_path = tmp_path
        self.config: dict[str, Any] = {"context": {"engine": "lcm"}}
        self.where = {"shipped": SHIPPED / "lcm"}

    def add(self, place: str, code: str = "") -> None:
        if place == "plugin":
            self.where[place] = self.plugins.plugin("hermes-like", REGISTER + code, engine_name="lcm")
            self.config.setdefault("plugins", {})["enabled"] = ["hermes-like"]
        elif place == "home":
            self.where[place] = self.plugins.engine("lcm", code)
        elif place == "plugins.paths":
            self.where[place] = self.plugins.engine("lcm", code, parent=self.tmp_path / "mine")
            self.config.setdefault("plugins", {})["paths"] = [str(self.tmp_path / "mine")]


@pytest.fixture
def four(plugins: Plugins, tmp_path: Path) -> Four:
    """Return a builder of engines with one name."""
    return Four(plugins, tmp_path)


def origin_of(engine: Any) -> str:
    """Return where an engine's code is."""
    return inspect.getfile(type(engine))


@pytest.mark.parametrize("strongest", ["shipped", "plugin", "home", "plugins.paths"])
def test_the_users_own_engine_wins_over_a_shipped_one(four: Four, strongest: str) -> None:
    """`plugins.paths` before the home folder, before an enabled plugin, before what is shipped."""
    there = PLACES[PLACES.index(strongest) :]
    for place in there:
        four.add(place)
    loaded = four.plugins.take(EngineSource(four.config))
    if strongest == "shipped":
        assert (type(loaded.engine), loaded.said) == (LCMEngine, [])
        return
    assert origin_of(loaded.engine) == str(four.where[strongest] / "__init__.py")
    (category, text) = loaded.said[-1]
    assert category == "PluginWarning"
    assert four.plugins.masked(str(four.where[strongest])) in text
    assert four.plugins.masked(str(SHIPPED / "lcm")) in text.partition("takes precedence over")[2]


def test_planted_a_search_that_takes_the_shipped_one_first_is_caught(
    four: Four, monkeypatch: pytest.MonkeyPatch
) -> None:
    from leporello.plugins.search import Search

    def shipped_first(self: Any) -> Any:
        return self._load(next(one for one in self._named if one.origin == "shipped"))

    four.add("home")
    monkeypatch.setattr(Search, "find", shipped_first)
    with pytest.raises(AssertionError):
        assert origin_of(EngineSource(four.config).new_engine()) == str(four.where["home"] / "__init__.py")


def test_a_general_plugins_engine_called_lcm_is_used_when_it_is_chosen(plugins: Plugins) -> None:
    """Whether it registers an engine or a class that only tells its name when it is made."""
    plugins.plugin("p1", REGISTER, engine_name="lcm")
    plugins.plugin("p2", REGISTER_CLASS_WITH_PROPERTY)
    for plugin in ("p1", "p2"):
        loaded = plugins.load("lcm", enabled=(plugin,))
        assert origin_of(loaded.engine) == str(plugins.home / "plugins" / plugin / "__init__.py")
    assert type(plugins.load("lcm").engine) is LCMEngine


def test_a_users_engine_that_fails_is_not_replaced_by_a_shipped_one_of_its_name(plugins: Plugins) -> None:
    plugins.broken("lcm", "raise RuntimeError('not today')")
    loaded = plugins.load("lcm")
    assert (loaded.fell_back, loaded.engine.name) == (True, "compressor")
    assert "not today" in loaded.said[0][1]


def test_the_name_compressor_stays_protected(plugins: Plugins, tmp_path: Path) -> None:
    plugins.engine("compressor")
    plugins.engine("compressor", parent=tmp_path / "mine")
    plugins.plugin("p1", REGISTER, engine_name="compressor")
    config = {"plugins": {"paths": [str(tmp_path / "mine")], "enabled": ["p1"]}}
    loaded = plugins.take(EngineSource(config))
    assert origin_of(loaded.engine).endswith("leporello/compressor/engine.py")
    for one in survey(Config.from_mapping(config)):
        if one.name == "compressor" and one.kind != "built-in":
            assert one.problem


def test_a_survey_lists_the_engines_of_enabled_plugins_and_what_they_shadow(four: Four) -> None:
    for place in ("plugin", "home", "plugins.paths"):
        four.add(place)
    four.plugins.plugin("other", REGISTER, engine_name="extra")
    four.config["plugins"]["enabled"].append("other")
    engines = {one.name: one for one in survey(Config.from_mapping(four.config)) if one.kind == "engine"}
    assert engines["extra"].origin == "plugin other"
    assert engines["lcm"].path == four.where["plugins.paths"]
    assert engines["lcm"].shadows == tuple(str(four.where[place]) for place in ("home", "plugin", "shipped"))


def test_a_survey_says_which_enabled_plugin_cannot_be_run(plugins: Plugins) -> None:
    plugins.plugin("p1", "def register(ctx):\n    raise ValueError('boom')\n")
    found = {one.name: one for one in survey(Config.from_mapping({"plugins": {"enabled": ["p1"]}}))}
    assert "boom" in found["p1"].problem


@pytest.mark.parametrize("place", ["plugin", "home", "plugins.paths"])
def test_an_engine_gets_its_own_block_as_it_stands_whatever_it_is_called(four: Four, place: str) -> None:
    """And none of our defaults: also where its keys are called like ours, or break our rules."""
    code = "\nEngine.__init__ = lambda self, context_length=0, config=None: vars(self).update(given=config)\n"
    if place == "plugin":
        code += "def register(ctx):\n    ctx.register_context_engine(Engine)\n"
    four.add(place, code)
    for block in ({"context_threshold": 0.6, "tail": [1]}, {"threshold": 1}, {}, None):
        engine: Any = four.plugins.take(EngineSource({**four.config, "lcm": block})).engine
        assert engine.given == (block or {})
        assert {name: type(value) for name, value in engine.given.items()} == {
            name: type(value) for name, value in (block or {}).items()
        }


def test_a_plugin_reads_its_block_as_it_stands_through_the_names_of_hermes(four: Four) -> None:
    four.add("plugin")
    four.plugins.take(EngineSource({**four.config, "lcm": {"context_threshold": 0.6}}))
    assert load_config()["lcm"] == {"context_threshold": 0.6}
    four.plugins.take(EngineSource(four.config))
    assert "lcm" not in load_config()


def test_a_foreign_engine_does_not_obey_the_settings_of_ours(four: Four, tmp_path: Path) -> None:
    """`ignore_sessions` and `store` in its block are its own business."""
    four.add("home")
    config = {**four.config, "lcm": {"ignore_sessions": ["*"], "store": str(tmp_path / "engine.db")}}
    with pytest.warns(PluginWarning, match="takes precedence"):
        session = Session.open("talk", config=config, model="m", context_length=9_000)
    with session:
        session.add({"role": "user", "content": "hello"})
        assert session.store.info("talk") is not None
        assert session.store.url != ":memory:"


def test_our_engine_has_our_schema_when_it_is_the_chosen_one(plugins: Plugins) -> None:
    wrong = {"context": {"engine": "lcm"}, "lcm": {"context_threshold": 0.6}}
    with pytest.raises(ConfigError, match=r"lcm\.context_threshold"):
        Config.from_mapping(wrong)
    plugins.plugin("other", REGISTER, engine_name="extra")
    enabled = {**wrong, "plugins": {"enabled": ["other"]}}
    with pytest.raises(ConfigError, match=r"lcm\.context_threshold"):
        load_engine(enabled)
    unchosen = Config.from_mapping({"lcm": {"context_threshold": 0.6}})
    with pytest.raises(ConfigError, match=r"lcm\.context_threshold"):
        load_engine(unchosen, name="lcm")
    with pytest.raises(ConfigError, match=r"lcm\.context_threshold"):
        LCMEngine(config=unchosen)


def test_a_block_that_does_not_fit_ours_beside_a_plugin_that_fails_is_told_with_the_failure(plugins: Plugins) -> None:
    """The plugin may be the one whose block this is."""
    plugins.plugin("p1", "def register(ctx):\n    raise ValueError('boom')\n")
    loaded = plugins.load("lcm", enabled=("p1",), config={"plugins": {"enabled": ["p1"]}, "lcm": {"depth": 3}})
    assert loaded.fell_back
    assert "boom" in loaded.said[0][1]
    assert "lcm.depth" in loaded.said[0][1]


def test_our_engine_reads_its_whole_configuration(plugins: Plugins) -> None:
    config = {"lcm": {"tail": 0.3}, "auxiliary": {"compression": {"timeout_seconds": 7}}}
    engine: Any = load_engine(config, name="lcm", llm=None)
    assert engine._settings.lcm.tail == 0.3
    assert engine._settings.timeout_seconds == 7


def test_settings_given_to_our_engine_are_ours_though_a_plugin_has_its_name(plugins: Plugins) -> None:
    plugins.engine("lcm")
    for given in ({"tail": 0.3}, {"lcm": {"tail": 0.3}}, Config.from_mapping({"lcm": {"tail": 0.3}})):
        engine: Any = LCMEngine(config=given)
        assert engine._settings.lcm.tail == 0.3


def test_the_enabled_plugins_run_once_for_all_that_is_needed_of_them(plugins: Plugins) -> None:
    folder = plugins.plugin("p1", COUNTS, engine_name="alpha")
    config = Config.from_mapping({"context": {"engine": "alpha"}, "plugins": {"enabled": ["p1"]}})
    enabled = EnabledPlugins(config)
    source = EngineSource(config, enabled=enabled)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        survey(config, enabled)
        engine = source.new_engine()
    assert (folder / "runs").read_text().split() == ["run"]
    said = [str(one.message).partition(",")[0] for one in caught if one.category is PluginWarning]
    assert said == ["plugin 'p1' has a hook x"]
    assert source.commands["whose"].handler("") == str(id(engine))
    assert enabled.commands.keys() == source.commands.keys()


def test_a_command_belongs_to_the_engine_that_was_registered_with_it(plugins: Plugins) -> None:
    """Also after the plugin had to run again, because the first engine is in use."""
    plugins.plugin("p1", COUNTS, engine_name="alpha")
    source = plugins.source("alpha", enabled=("p1",))
    first = plugins.take(source).engine
    assert source.commands["whose"].handler("") == str(id(first))
    second = plugins.take(source).engine
    assert first is not second
    assert source.commands["whose"].handler("") == str(id(second))
