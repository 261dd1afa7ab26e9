"""What is found, and that finding it runs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from leporello import Config
from leporello.errors import PluginError
from leporello.plugins import Manifest, load_engine, read_manifest
from leporello.plugins.discover import Found, discover, places
from leporello.plugins.new import class_name, files, new_engine_folder

if TYPE_CHECKING:
    from tests.fixtures.plugins import Plugins


EXAMPLE = Path(__file__).parents[2] / "examples" / "keep_last_engine"


def found(**blocks: object) -> dict[str, Found]:
    return {f"{one.kind} {one.name}": one for one in discover(Config.from_mapping(blocks))}


def test_engines_and_plugins_are_listed_with_what_they_say_of_themselves(plugins: Plugins) -> None:
    plugins.engine("alpha")
    plugins.plugin("p1", "")
    plugins.plugin("p2", "")
    listed = found(plugins={"enabled": ["p2"]})
    assert list(listed) == ["built-in compressor", "engine alpha", "engine lcm", "plugin p1", "plugin p2"]
    alpha = listed["engine alpha"]
    assert (alpha.description, alpha.version, alpha.origin) == ("An engine for a test.", "1.10", "home")
    assert alpha.called == "alpha"
    assert [listed[f"plugin {name}"].enabled for name in ("p1", "p2")] == [False, True]


def test_the_later_place_wins(plugins: Plugins, tmp_path: Path) -> None:
    plugins.engine("alpha")
    mine = plugins.engine("alpha", parent=tmp_path / "mine")
    assert found(plugins={"paths": [str(mine.parent)]})["engine alpha"].path == mine


def test_a_folder_that_is_in_two_places_is_one_engine(plugins: Plugins, tmp_path: Path) -> None:
    """The test that `plugins new` writes names its own folder, which may be in the home folder, too."""
    folder = plugins.engine("alpha")
    assert found(plugins={"paths": [str(folder)]})["engine alpha"].shadows == ()
    other = plugins.engine("alpha", parent=tmp_path / "other")
    assert found(plugins={"paths": [str(other)]})["engine alpha"].shadows == (str(folder),)


def test_installed_plugins_are_found_by_their_entry_point(
    plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "site" / "somebodys_engine-2.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: somebodys-engine\nVersion: 2.5\nSummary: Somebody's.\n"
    )
    (info / "entry_points.txt").write_text("[leporello.plugins]\nsomebody = somebodys_engine:register\n")
    (info.parent / "somebodys_engine.py").write_text(
        "from tests_entry_point_engine import Engine\n\ndef register(ctx):\n    ctx.register_context_engine(Engine)\n"
    )
    engine = plugins.engine("somebody", parent=tmp_path / "elsewhere") / "__init__.py"
    (info.parent / "tests_entry_point_engine.py").write_text(engine.read_text())
    monkeypatch.syspath_prepend(str(info.parent))
    listed = found()["plugin somebody"]
    assert (listed.description, listed.version, listed.origin, listed.enabled) == (
        "Somebody's.",
        "2.5",
        "entry point",
        False,
    )
    assert load_engine({"context": {"engine": "somebody"}, "plugins": {"enabled": ["somebody"]}}).name == "somebody"


def test_finding_a_plugin_does_not_run_it(plugins: Plugins, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    trap = f"from pathlib import Path\nPath({str(ran)!r}).write_text('')\n"
    plugins.engine("trap", trap)
    plugins.engine("other")
    plugins.plugin("trap2", trap)
    config = Config.from_mapping({"context": {"engine": "other"}, "plugins": {"enabled": ["trap2"]}})
    assert len(discover(config)) == 5
    assert load_engine(config).name == "other"
    assert not ran.exists()
    load_engine(config, name="trap")
    assert ran.exists(), "the trap works: loading it runs it"


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        ("name: [unclosed\n", "is not YAML: "),
        ("- a\n- list\n", "must hold `name: …`"),
        ("name: {a: 1}\n", "`name` must be one line of text"),
        ("name: a\nname: b\n", "is not YAML: "),
        (b"name: \xff\xfe\n", "is not UTF-8 text"),
        ("x" * 70_000, "is longer than 65,536 bytes"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_told_and_does_not_stop_the_engine(
    plugins: Plugins, manifest: str | bytes, complaint: str
) -> None:
    folder = plugins.engine("alpha")
    (folder / "plugin.yaml").write_bytes(manifest if isinstance(manifest, bytes) else manifest.encode())
    assert complaint in found()["engine alpha"].note
    loaded = plugins.load("alpha")
    assert not loaded.fell_back
    assert complaint in loaded.said[0][1]


def test_a_manifest_gives_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").write_text("name: n\nversion: 0.10\ndescription: >\n  two\n  lines\nauthor: somebody\n")
    assert read_manifest(tmp_path) == Manifest(name="n", version="0.10", description="two lines")


def test_without_a_manifest_everything_is_blank(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) == Manifest()


@given(st.binary(max_size=200))
def test_no_bytes_make_the_manifest_reader_stumble(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "plugin.yaml").write_bytes(raw)
    try:
        manifest = read_manifest(folder)
    except PluginError as error:
        assert error.file == folder / "plugin.yaml"  # noqa: PT017 - either outcome is right, a third is not
    else:
        assert isinstance(manifest, Manifest)


def test_a_manifest_without_code_is_listed_with_its_problem(plugins: Plugins) -> None:
    folder = plugins.engine("alpha")
    (folder / "__init__.py").unlink()
    assert "has no __init__.py" in found()["engine alpha"].problem
    assert "has no __init__.py" in plugins.load("alpha").said[0][1]


def test_other_folders_and_hidden_ones_are_no_plugins(plugins: Plugins) -> None:
    engines = plugins.engine("alpha").parent
    plugins.engine("_private")
    plugins.engine(".hidden")
    (engines / "notes").mkdir()
    (engines / "file.txt").write_text("")
    assert list(found()) == ["built-in compressor", "engine alpha", "engine lcm"]


def test_a_place_that_the_user_named_must_be_there(plugins: Plugins, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    named = [str(tmp_path / "missing"), str(tmp_path / "file")]
    problems = {str(place.path): place.problem for place in places(Config.from_mapping({"plugins": {"paths": named}}))}
    assert [problems[path] for path in named] == ["does not exist", "is not a folder"]
    assert [problem for path, problem in problems.items() if path not in named] == ["", "", ""]
    loaded = plugins.load("alpha", config={"plugins": {"paths": named}})
    assert "missing (does not exist)" in loaded.said[0][1]


def test_a_home_that_is_a_file_is_a_finding_not_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("")
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path / "home"))
    assert list(found()) == ["built-in compressor", "engine lcm"]


def test_a_new_engine_folder_is_found_and_nothing_is_overwritten(plugins: Plugins) -> None:
    parent = plugins.home / "plugins" / "context_engine"
    folder = new_engine_folder("my-engine", parent)
    assert found()["engine my-engine"].problem == ""
    assert plugins.load("my-engine", context_length=1_000).engine.threshold_tokens == 750
    (folder / "__init__.py").write_text("mine")
    with pytest.raises(PluginError, match="exists already"):
        new_engine_folder("my-engine", parent)
    assert (folder / "__init__.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "My", "1a", "a b", "../a", "a/b", "compressor", "ä"])
def test_names_that_no_engine_can_have_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PluginError):
        new_engine_folder(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_new_engine_folder_where_none_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PluginError, match="cannot be made"):
        new_engine_folder("alpha", tmp_path / "file")


def test_the_example_is_what_new_writes() -> None:
    written = {file.name: file.read_text() for file in EXAMPLE.iterdir() if file.is_file()}
    assert written == files("keep_last_engine")


def test_classes_are_called_after_their_engine() -> None:
    assert [class_name(name) for name in ("keep-last", "keep_last_engine", "engine")] == [
        "KeepLastEngine",
        "KeepLastEngine",
        "Engine",
    ]


@given(st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True))
def test_every_name_gives_code_that_compiles(name: str) -> None:
    for file, text in files(name).items():
        if file.endswith(".py"):
            compile(text, file, "exec")
