# ruff: noqa: E501 - the texts of warnings are long lines
"""Which engine a configuration leads to, and what the user is told when it is not the chosen one."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from inline_snapshot import snapshot

import leporello
from leporello import load_engine
from leporello.compressor import ContextCompressor
from leporello.errors import ConfigError, EngineFallbackWarning, PluginError, PluginWarning, UnknownWindowWarning
from leporello.llm import ScriptedLLM
from leporello.plugins import EngineSource
from leporello.tokens import DEFAULT_WINDOW

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.plugins import Plugins

REGISTER_INSTANCE = """
def register(ctx):
    ctx.register_context_engine(Engine(context_length=200_000))
"""
REGISTER_CLASS = """
def register(ctx):
    ctx.register_context_engine(Engine)
"""
SINGLETON = """
ONLY = Engine()

def register(ctx):
    ctx.register_context_engine(ONLY)
"""
HOLDS_A_LOCK = """
import threading, sqlite3

class Holding(Engine):
    name = "NAME"

    def __init__(self, context_length=0):
        self.lock = threading.Lock()
        self.database = sqlite3.connect(":memory:")

    def close(self):
        self.database.close()

def register(ctx):
    ctx.register_context_engine(Holding(context_length=200_000))
"""


def test_nothing_configured_is_the_compressor(plugins: Plugins) -> None:
    engine = load_engine()
    assert type(engine) is ContextCompressor
    assert engine.name == "compressor"


def test_a_folder_engine_is_used_and_given_its_window_and_its_block(plugins: Plugins) -> None:
    plugins.engine("alpha")
    loaded = plugins.load("alpha", config={"alpha": {"depth": 3}}, context_length=200_000, model="m")
    assert loaded.said == []
    assert loaded.engine.name == "alpha"
    assert vars(loaded.engine)["given"] == (200_000, {"depth": 3})
    assert (loaded.engine.context_length, loaded.engine.threshold_tokens) == (200_000, 150_000)


def test_a_path_a_mapping_and_a_config_lead_to_the_same_engine(plugins: Plugins, tmp_path: Path) -> None:
    plugins.engine("alpha")
    file = tmp_path / "config.yaml"
    file.write_text("context:\n  engine: alpha\n")
    mapping = {"context": {"engine": "alpha"}}
    for config in (file, str(file), mapping, leporello.Config.from_mapping(mapping)):
        assert load_engine(config).name == "alpha"
    assert load_engine(name="alpha").name == "alpha"


def test_the_home_beats_what_is_shipped_and_paths_beat_the_home(plugins: Plugins, tmp_path: Path) -> None:
    plugins.engine("alpha", "Engine.came_from = 'home'")
    plugins.engine("alpha", "Engine.came_from = 'paths'", parent=tmp_path / "mine")
    assert vars(type(plugins.load("alpha").engine))["came_from"] == "home"
    loaded = plugins.load("alpha", config={"plugins": {"paths": [str(tmp_path / "mine")]}})
    assert vars(type(loaded.engine))["came_from"] == "paths"


@pytest.mark.parametrize("inside", ["", "mine", "plugins/context_engine"])
def test_plugins_paths_may_name_the_folder_or_one_around_it(plugins: Plugins, tmp_path: Path, inside: str) -> None:
    folder = plugins.engine("alpha", parent=tmp_path / inside if inside else tmp_path)
    named = {"": folder, "mine": folder.parent, "plugins/context_engine": folder.parent.parent}[inside]
    loaded = plugins.load("alpha", config={"plugins": {"paths": [str(named)]}})
    assert (loaded.engine.name, loaded.said) == ("alpha", [])


def test_the_current_folder_counts_only_when_it_is_named(
    plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins.engine("alpha", parent=tmp_path / "plugins" / "context_engine")
    monkeypatch.chdir(tmp_path)
    assert plugins.load("alpha").fell_back
    assert not plugins.load("alpha", config={"plugins": {"paths": ["plugins"]}}).fell_back


@pytest.mark.parametrize("register", [REGISTER_INSTANCE, REGISTER_CLASS])
def test_an_enabled_plugin_brings_its_engine(plugins: Plugins, register: str) -> None:
    plugins.plugin("p1", register, engine_name="alpha")
    loaded = plugins.load("alpha", enabled=("p1",), context_length=100_000)
    assert (loaded.engine.name, loaded.engine.context_length, loaded.said) == ("alpha", 100_000, [])


def test_an_unknown_window_leaves_the_one_that_the_plugin_chose(plugins: Plugins) -> None:
    plugins.plugin(
        "p1", "def register(ctx):\n    e = Engine(); e.context_length = 5000; ctx.register_context_engine(e)\n"
    )
    assert plugins.load("p1", enabled=("p1",)).engine.context_length == 5000


def test_an_engine_is_never_used_unasked(plugins: Plugins) -> None:
    plugins.plugin("p1", REGISTER_INSTANCE, engine_name="alpha")
    plugins.engine("beta")
    assert type(load_engine({"plugins": {"enabled": ["p1"]}})) is ContextCompressor


def test_of_two_registered_engines_the_selected_one_wins(plugins: Plugins) -> None:
    plugins.plugin("p1", REGISTER_INSTANCE, engine_name="alpha")
    plugins.plugin("p2", REGISTER_INSTANCE, engine_name="beta")
    loaded = plugins.load("beta", enabled=("p1", "p2"))
    assert loaded.engine.name == "beta"
    assert loaded.said == snapshot(
        [
            (
                "PluginWarning",
                "plugin 'p1' registers another engine, 'alpha'; only one can be registered: 'beta' of plugin 'p2' is kept",
            )
        ]
    )


def test_a_second_registration_is_refused_with_a_warning(plugins: Plugins) -> None:
    plugins.plugin("p1", REGISTER_INSTANCE, engine_name="alpha")
    plugins.plugin("p2", REGISTER_INSTANCE, engine_name="beta")
    loaded = plugins.load("alpha", enabled=("p1", "p2"))
    assert loaded.engine.name == "alpha"
    assert loaded.said == snapshot(
        [
            (
                "PluginWarning",
                "plugin 'p2' registers another engine, 'beta'; only one can be registered: 'alpha' of plugin 'p1' is kept",
            )
        ]
    )


def test_an_engine_made_only_to_learn_its_name_is_closed_again(plugins: Plugins, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    code = f"""
    from pathlib import Path

    class Quiet(Engine):
        @property
        def name(self):
            return "NAME"

        def close(self):
            Path({str(closed)!r}).write_text(self.name)

    def register(ctx):
        ctx.register_context_engine(Quiet)
    """
    plugins.plugin("p1", code.replace("NAME", "alpha"))
    plugins.plugin("p2", code.replace("NAME", "beta"))
    source = plugins.source("beta", enabled=("p1", "p2"))
    loaded = plugins.take(source)
    assert loaded.engine.name == "beta"
    assert closed.read_text() == "alpha"


def test_missing(plugins: Plugins) -> None:
    plugins.engine("alpha")
    loaded = plugins.load("alfa")
    assert type(loaded.engine) is ContextCompressor
    assert loaded.said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'alfa' cannot be used; the built-in compressor takes its place.
  looked for a folder 'alfa' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'alfa' of the group leporello.engines
  and for a plugin that registers it: none is enabled
  why: there is no engine of that name
  did you mean 'alpha'?
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )


def test_not_enabled(plugins: Plugins) -> None:
    plugins.plugin("p1", REGISTER_INSTANCE, engine_name="alpha")
    loaded = plugins.load("alpha")
    assert type(loaded.engine) is ContextCompressor
    assert loaded.said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'alpha' cannot be used; the built-in compressor takes its place.
  looked for a folder 'alpha' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'alpha' of the group leporello.engines
  and for a plugin that registers it: none is enabled
  why: there is no engine of that name
  installed, but not named in plugins.enabled: p1
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )


def test_enabled_but_not_installed(plugins: Plugins) -> None:
    assert plugins.load("alpha", enabled=("p1",)).said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'alpha' cannot be used; the built-in compressor takes its place.
  looked for a folder 'alpha' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'alpha' of the group leporello.engines
  and for a plugin that registers it: p1
  why: plugin 'p1': plugins.enabled names it, but it is not installed.
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )


def test_import_error(plugins: Plugins) -> None:
    plugins.broken("alpha", "import json\n\nimport surely_not_installed\n")
    assert plugins.load("alpha").said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'alpha' cannot be used; the built-in compressor takes its place.
  looked for a folder 'alpha' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'alpha' of the group leporello.engines
  and for a plugin that registers it: none is enabled
  why: plugin 'alpha' (HOME/plugins/context_engine/alpha/__init__.py, line 3): importing it failed: ModuleNotFoundError: No module named 'surely_not_installed'
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )


def test_import_of_a_neighbour_as_if_it_were_installed(plugins: Plugins) -> None:
    folder = plugins.broken("alpha", "import storage_of_alpha\n")
    (folder / "storage_of_alpha.py").write_text("")
    assert plugins.load("alpha").said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'alpha' cannot be used; the built-in compressor takes its place.
  looked for a folder 'alpha' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'alpha' of the group leporello.engines
  and for a plugin that registers it: none is enabled
  why: plugin 'alpha' (HOME/plugins/context_engine/alpha/__init__.py, line 1): importing it failed: ModuleNotFoundError: No module named 'storage_of_alpha'. It lies beside __init__.py: write `from . import storage_of_alpha`
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )


def test_syntax_error(plugins: Plugins) -> None:
    plugins.broken("alpha", "class Engine:\n    def oops(:\n")
    loaded = plugins.load("alpha")
    assert loaded.fell_back
    assert "context_engine/alpha/__init__.py, line 2): importing it failed: SyntaxError: " in loaded.said[0][1]


def test_exit_at_import(plugins: Plugins) -> None:
    plugins.broken("alpha", "import sys\nsys.exit(3)\n")
    assert plugins.load("alpha").said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'alpha' cannot be used; the built-in compressor takes its place.
  looked for a folder 'alpha' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'alpha' of the group leporello.engines
  and for a plugin that registers it: none is enabled
  why: plugin 'alpha' (HOME/plugins/context_engine/alpha/__init__.py, line 2): importing it failed: it wanted to end the program (SystemExit: 3)
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )


def test_constructor_error(plugins: Plugins) -> None:
    plugins.engine(
        "alpha", "def broken(self, context_length=0):\n    raise OSError('no room')\nEngine.__init__ = broken\n"
    )
    assert plugins.load("alpha").said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'alpha' cannot be used; the built-in compressor takes its place.
  looked for a folder 'alpha' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'alpha' of the group leporello.engines
  and for a plugin that registers it: none is enabled
  why: plugin 'alpha' (HOME/plugins/context_engine/alpha/__init__.py, line 19): constructing its engine failed: OSError: no room
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )


def test_abstract_method_left_out(plugins: Plugins) -> None:
    plugins.broken(
        "alpha",
        """
        from leporello import ContextEngine

        class Unfinished(ContextEngine):
            name = "alpha"
        """,
    )
    loaded = plugins.load("alpha")
    assert loaded.fell_back
    assert "alpha/__init__.py, line 4): constructing its engine failed: TypeError: " in loaded.said[0][1]
    assert "compress" in loaded.said[0][1]


def test_register_error(plugins: Plugins) -> None:
    plugins.engine("alpha", "def register(ctx):\n    raise ValueError('boom')\n")
    plugins.plugin("p1", "def register(ctx):\n    raise ValueError('boom')\n", engine_name="beta")
    assert plugins.load("alpha").said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'alpha' cannot be used; the built-in compressor takes its place.
  looked for a folder 'alpha' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'alpha' of the group leporello.engines
  and for a plugin that registers it: none is enabled
  why: plugin 'alpha' (HOME/plugins/context_engine/alpha/__init__.py, line 19): its register(ctx) failed: ValueError: boom
  installed, but not named in plugins.enabled: p1
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )
    assert plugins.load("beta", enabled=("p1",)).said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'beta' cannot be used; the built-in compressor takes its place.
  looked for a folder 'beta' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'beta' of the group leporello.engines
  and for a plugin that registers it: p1
  why: plugin 'p1' (HOME/plugins/p1/__init__.py, line 19): its register(ctx) failed: ValueError: boom
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )


def test_one_broken_plugin_does_not_stop_another(plugins: Plugins) -> None:
    plugins.plugin("p1", "def register(ctx):\n    raise ValueError('boom')\n")
    plugins.plugin("p2", REGISTER_INSTANCE, engine_name="beta")
    loaded = plugins.load("beta", enabled=("p1", "p2"))
    assert loaded.engine.name == "beta"
    assert loaded.said == snapshot(
        [
            (
                "PluginWarning",
                "plugin 'p1' (HOME/plugins/p1/__init__.py, line 19): its register(ctx) failed: ValueError: boom",
            )
        ]
    )


@pytest.mark.parametrize(
    ("registered", "complaint"),
    [
        ("'an engine'", "registers a value of type str as its engine"),
        ("None", "registers None as its engine"),
        ("dict", "registers the class dict as its engine, which is not a ContextEngine"),
        ("lambda: {}", "<lambda>() returns a value of type dict, not a ContextEngine"),
    ],
)
def test_wrong_type(plugins: Plugins, registered: str, complaint: str) -> None:
    plugins.engine("alpha", f"def register(ctx):\n    ctx.register_context_engine({registered})\n")
    loaded = plugins.load("alpha")
    assert loaded.fell_back
    assert complaint in loaded.said[0][1]
    assert "__init__.py, line " in loaded.said[0][1]


def test_no_engine_in_a_folder(plugins: Plugins) -> None:
    plugins.broken("alpha", "from leporello import ContextEngine\n")
    assert plugins.load("alpha").said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'alpha' cannot be used; the built-in compressor takes its place.
  looked for a folder 'alpha' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'alpha' of the group leporello.engines
  and for a plugin that registers it: none is enabled
  why: plugin 'alpha' (HOME/plugins/context_engine/alpha/__init__.py): defines neither register(ctx) nor a subclass of ContextEngine.
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )


def test_update_model_error(plugins: Plugins) -> None:
    plugins.engine("alpha", "Engine.update_model = lambda self, **kwargs: 1 / 0\n")
    loaded = plugins.load("alpha")
    assert loaded.fell_back
    assert "its update_model() failed: ZeroDivisionError" in loaded.said[0][1]


def test_a_name_that_is_not_a_text(plugins: Plugins) -> None:
    plugins.engine("alpha", "Engine.name = 7\n")
    assert "`name` is 7, not a text" in plugins.load("alpha").said[0][1]


def test_a_folder_whose_engine_has_another_name_works_and_says_so(plugins: Plugins) -> None:
    plugins.engine("alpha", engine_name="omega")
    loaded = plugins.load("alpha")
    assert loaded.engine.name == "omega"
    assert loaded.said == snapshot(
        [
            (
                "PluginWarning",
                "plugin 'alpha' (HOME/plugins/context_engine/alpha): its engine calls itself 'omega'; the folder's name counts",
            )
        ]
    )


def test_a_plugin_whose_engine_has_another_name_does_not_count(plugins: Plugins) -> None:
    plugins.plugin("alpha", REGISTER_INSTANCE, engine_name="omega")
    assert plugins.load("alpha", enabled=("alpha",)).said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'alpha' cannot be used; the built-in compressor takes its place.
  looked for a folder 'alpha' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'alpha' of the group leporello.engines
  and for a plugin that registers it: alpha
  why: plugin 'alpha' registers 'omega', not 'alpha'
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )


def test_no_folder_can_be_called_compressor(plugins: Plugins) -> None:
    plugins.engine("compressor")
    loaded = plugins.load("compressor")
    assert type(loaded.engine) is ContextCompressor
    assert loaded.said == snapshot(
        [
            (
                "PluginWarning",
                "plugin 'compressor' (HOME/plugins/context_engine/compressor) is ignored: the built-in engine alone can be called 'compressor'",
            )
        ]
    )


def test_many_conversations_look_for_plugins_once(plugins: Plugins) -> None:
    plugins.engine("compressor")
    source = EngineSource({}, name="compressor", llm=None, context_length=200_000)
    with pytest.warns(PluginWarning, match="is ignored") as told:
        engines = [source.new_engine() for _ in range(3)]
    assert len(told) == 1
    assert len({id(engine) for engine in engines}) == 3


def test_no_plugin_can_register_a_compressor(plugins: Plugins) -> None:
    plugins.plugin("p1", REGISTER_INSTANCE, engine_name="compressor")
    assert plugins.load("compressor", enabled=("p1",)).said == []
    assert plugins.load("compresor", enabled=("p1",)).said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'compresor' cannot be used; the built-in compressor takes its place.
  looked for a folder 'compresor' in SHIPPED, HOME/plugins/context_engine
  for an entry point 'compresor' of the group leporello.engines
  and for a plugin that registers it: p1
  why: there is no engine of that name
  note: plugin 'p1' (HOME/plugins/p1) is ignored: the built-in engine alone can be called 'compressor'
  did you mean 'compressor'?
  `leporello plugins list` shows what there is, `leporello doctor` what is wrong\
""",
            )
        ]
    )


def test_a_folder_may_import_its_own_files_in_every_way(plugins: Plugins) -> None:
    folder = plugins.engine(
        "alpha",
        """
        from . import helper
        from .helper import VALUE
        from .deep.inner import BOTTOM
        from plugins.context_engine.alpha import helper as same
        from plugins.context_engine.alpha.deep.inner import BOTTOM as same_bottom

        Engine.answers = (helper is same, BOTTOM is same_bottom, VALUE)
        """,
    )
    (folder / "helper.py").write_text("VALUE = 42\n")
    (folder / "deep").mkdir()
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "deep" / "inner.py").write_text("from ..helper import VALUE\nBOTTOM = object()\n")
    loaded = plugins.load("alpha")
    assert loaded.said == []
    assert vars(type(loaded.engine))["answers"] == (True, True, 42)


def test_two_folders_of_one_name_do_not_mix(plugins: Plugins, tmp_path: Path) -> None:
    code = "from plugins.context_engine.alpha.helper import VALUE\nEngine.value = VALUE\n"
    for place, value in ((tmp_path / "one", 1), (tmp_path / "two", 2), (tmp_path / "one", 1)):
        if not place.exists():
            (plugins.engine("alpha", code, parent=place) / "helper.py").write_text(f"VALUE = {value}\n")
        loaded = plugins.load("alpha", config={"plugins": {"paths": [str(place)]}})
        assert vars(type(loaded.engine))["value"] == value


def test_a_plugin_that_failed_is_tried_again_when_it_is_mended(plugins: Plugins) -> None:
    folder = plugins.engine("alpha", "raise RuntimeError('not yet')")
    assert plugins.load("alpha").fell_back
    code = (folder / "__init__.py").read_text().replace("raise RuntimeError('not yet')", "")
    (folder / "__init__.py").write_text(code)
    assert not plugins.load("alpha").fell_back


@pytest.mark.parametrize("kind", ["folder", "plugin"])
def test_an_engine_that_cannot_be_copied_serves_two_conversations(plugins: Plugins, kind: str) -> None:
    if kind == "folder":
        plugins.engine("held", HOLDS_A_LOCK.replace("NAME", "held"))
        source = plugins.source("held")
    else:
        plugins.plugin("p1", HOLDS_A_LOCK.replace("NAME", "held"))
        source = plugins.source("held", enabled=("p1",))
    first, second = plugins.take(source), plugins.take(source)
    assert (first.said, second.said) == ([], [])
    assert first.engine is not second.engine
    assert first.engine.name == second.engine.name == "held"
    with pytest.raises(TypeError):
        copy.deepcopy(first.engine)  # the planted way to make a second one does not work
    for loaded in (first, second):
        loaded.engine.close()


@pytest.mark.parametrize("register", ["", REGISTER_INSTANCE, REGISTER_CLASS])
@pytest.mark.parametrize("one_source", [True, False])
def test_two_conversations_have_two_engines(plugins: Plugins, register: str, *, one_source: bool) -> None:
    plugins.engine("alpha", register)
    source = plugins.source("alpha")
    first = plugins.take(source)
    second = plugins.take(source if one_source else plugins.source("alpha"))
    assert first.engine is not second.engine
    assert (first.said, second.said) == ([], [])


def test_the_same_object_again_gives_the_second_conversation_the_compressor(plugins: Plugins) -> None:
    plugins.plugin("p1", SINGLETON, engine_name="alpha")
    source = plugins.source("alpha", enabled=("p1",))
    first, second = plugins.take(source), plugins.take(source)
    third = plugins.load("alpha", enabled=("p1",))
    assert [loaded.engine.name for loaded in (first, second, third)] == ["alpha", "compressor", "compressor"]
    assert first.said == []
    assert second.said == third.said
    assert second.said == snapshot(
        [
            (
                "EngineFallbackWarning",
                """\
context engine 'alpha' cannot be used; the built-in compressor takes its place.
  why: plugin 'p1' (HOME/plugins/p1): hands out the same engine for every conversation, and another one has it. Let it register the engine's class or a function that makes one, or override clone_for_agent().\
""",
            )
        ]
    )


def test_a_clone_comes_before_everything_else(plugins: Plugins) -> None:
    clone = "Engine.clone_for_agent = lambda self: setattr(clone := Engine(), 'cloned', True) or clone\n"
    plugins.plugin("p1", SINGLETON + clone, engine_name="alpha")
    source = plugins.source("alpha", enabled=("p1",), context_length=9_000)
    first, second = plugins.take(source), plugins.take(source)
    assert first.engine is not second.engine
    for loaded in (first, second):
        assert (vars(loaded.engine)["cloned"], loaded.engine.context_length, loaded.said) == (True, 9_000, [])


def test_a_clone_that_is_none_or_itself_does_not_count(plugins: Plugins) -> None:
    plugins.engine("none", "Engine.clone_for_agent = lambda self: None\n")
    source = plugins.source("none")
    assert plugins.take(source).engine is not plugins.take(source).engine
    plugins.engine("itself", "Engine.clone_for_agent = lambda self: self\n")
    source = plugins.source("itself")
    assert [plugins.take(source).engine.name for _ in range(2)] == ["itself", "compressor"]


def test_what_a_plugin_registers_besides_is_accepted_and_explained(plugins: Plugins) -> None:
    plugins.engine(
        "alpha",
        """
        def register(ctx):
            ctx.register_context_engine(Engine)
            ctx.register_command("/alpha", lambda arguments: f"alpha {arguments}", description="Says alpha.")
            ctx.register_hook("pre_llm_call", print)
            ctx.register_tool(name="t", handler=print)
            ctx.register_something_new(1, two=2)
            Engine.has_more = getattr(ctx, "context_engine_tool_handlers_receive_messages", None)
        """,
    )
    source = plugins.source("alpha")
    loaded = plugins.take(source)
    assert loaded.said == snapshot(
        [
            (
                "PluginWarning",
                "plugin 'alpha' calls register_hook(), which does nothing here: the hook is never called",
            ),
            (
                "PluginWarning",
                "plugin 'alpha' calls register_tool(), which does nothing here: the model is not offered the tool; an engine offers tools through get_tool_schemas()",
            ),
            (
                "PluginWarning",
                "plugin 'alpha' calls register_something_new(), which does nothing here: it has no effect",
            ),
        ]
    )
    assert source.commands["alpha"].handler("x") == "alpha x"
    assert source.commands["alpha"].description == "Says alpha."


def test_the_summariser_goes_to_every_engine_that_takes_one(plugins: Plugins) -> None:
    code = "def take(self, context_length=0, *, llm=None, store=None):\n    self.took = (llm, store)\nEngine.__init__ = take\n"
    plugins.engine("alpha", code)
    llm = ScriptedLLM("summary")
    assert vars(plugins.load("alpha", llm=llm, store=":memory:").engine)["took"] == (llm, ":memory:")
    assert vars(plugins.load("alpha").engine)["took"] == (None, None)


@pytest.mark.parametrize("entry", [load_engine, EngineSource])
def test_a_misspelt_option_is_an_error_that_names_the_right_one(plugins: Plugins, entry: Any) -> None:
    plugins.engine("alpha")
    with pytest.raises(TypeError, match=r"'contxt_length'\. Did you mean 'context_length'\?"):
        entry(name="alpha", contxt_length=5)
    with pytest.raises(TypeError, match="'zzz'; it takes config, name, model, "):
        entry(name="alpha", zzz=5)
    assert entry(name="alpha", store=":memory:", clock=None)  # an engine need not take what may be offered to any


def test_windows_come_from_the_configuration_then_from_the_table(plugins: Plugins) -> None:
    def window(config: dict[str, Any], **options: Any) -> int:
        return load_engine(config, **options).context_length

    assert window({"model": {"default": "m", "context_length": 1_000}}) == 1_000
    assert window({"model": {"context_length": 1_000}}, model="any") == 1_000, "where none is the default one"
    assert window({"windows": {"other": 2_000}}, model="other") == 2_000
    assert window({"model": {"default": "gpt-5.5", "provider": "openai-codex"}}) == 272_000
    assert window({"model": {"default": "gpt-5.5", "provider": "openai-codex"}}, context_length=7) == 7


@pytest.mark.parametrize(
    ("config", "options", "name"),
    [
        ({}, {}, "of the model"),
        ({}, {"model": "nobody-knows-it"}, "of 'nobody-knows-it'"),
        ({"model": {"default": "m", "context_length": 1_000}}, {"model": "other"}, "of 'other'"),
        ({"model": {"default": "qwen3", "provider": "ollama"}}, {}, "of 'qwen3'"),
    ],
)
@pytest.mark.parametrize("engine", ["compressor", "lcm", "alpha"])
def test_without_a_known_window_one_is_assumed_and_said(
    plugins: Plugins, config: dict[str, Any], options: dict[str, Any], name: str, engine: str
) -> None:
    plugins.engine("alpha")
    with pytest.warns(UnknownWindowWarning) as said:
        loaded = load_engine(config, name=engine, **options)
    assert [str(one.message).partition(":")[0] for one in said] == [f"the window {name} is not known"]
    assert said[0].filename == __file__
    assert loaded.context_length == DEFAULT_WINDOW
    assert loaded.threshold_tokens > 0
    assert loaded.should_compress(loaded.context_length) is (engine != "alpha")


def test_a_source_says_once_that_it_assumes_a_window(plugins: Plugins) -> None:
    source = EngineSource({})
    with pytest.warns(UnknownWindowWarning) as said:
        windows = [source.new_engine().context_length for _ in range(3)]
    assert windows == [DEFAULT_WINDOW] * 3
    assert len(said) == 1


def test_an_assumed_window_does_not_replace_the_one_that_a_plugin_gave_its_engine(plugins: Plugins) -> None:
    plugins.plugin(
        "alpha",
        """
        def register(ctx):
            engine = Engine()
            engine.context_length = 5_000
            ctx.register_context_engine(engine)
        """,
    )
    config = {"plugins": {"enabled": ["alpha"]}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_engine(config, name="alpha").context_length == 5_000


def test_a_wrong_configuration_is_an_error_not_a_fallback(plugins: Plugins) -> None:
    with pytest.raises(ConfigError):
        load_engine({"contxt": {"engine": "alpha"}})


def test_the_warning_points_at_the_line_that_asked(plugins: Plugins) -> None:
    with pytest.warns(EngineFallbackWarning) as caught:
        load_engine(name="missing")
    assert caught[0].filename == __file__


def test_make_raises_instead_of_falling_back(plugins: Plugins) -> None:
    with pytest.raises(PluginError, match="there is no engine of that name"):
        plugins.source("missing").make()


def test_an_engine_that_a_conversation_drops_is_freed(plugins: Plugins) -> None:
    plugins.engine("alpha")
    dropped = weakref.ref(plugins.load("alpha").engine)
    gc.collect()
    assert dropped() is None
