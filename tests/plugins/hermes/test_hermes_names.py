"""The import names of Hermes Agent, in processes of their own: without one, beside a real one, and under pytest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leporello.errors import NetworkError
from leporello.llm import ScriptedLLM
from leporello.plugins.hermes import PROVIDED, host

if TYPE_CHECKING:
    from tests.fixtures.plugins import Plugins

    from leporello.messages import Message

EXAMPLE = Path(__file__).parents[3] / "examples" / "keep_last_engine"

REAL_CONTRACT = """
from abc import ABC, abstractmethod

class ContextEngine(ABC):
    @property
    @abstractmethod
    def name(self): ...
    @abstractmethod
    def update_from_response(self, usage): ...
    @abstractmethod
    def should_compress(self, prompt_tokens=None): ...
    @abstractmethod
    def compress(self, messages, current_tokens=None, focus_topic=None): ...
    context_length = 0
    def update_model(self, model, context_length, base_url="", api_key="", provider="", api_mode=""):
        self.context_length = context_length
    def get_tool_schemas(self):
        return []
"""
THEIR_ENGINE = """
class Theirs(ContextEngine):
    name = "theirs"
    def update_from_response(self, usage): ...
    def should_compress(self, prompt_tokens=None): return False
    def compress(self, messages, current_tokens=None, focus_topic=None): return list(messages)
"""
# The test of Hermes Agent's documentation for engine plugins, as it stands there.
DOCUMENTED_TEST = """
from agent.context_engine import ContextEngine

def test_engine_satisfies_abc():
    engine = YourEngine(context_length=200000)
    assert isinstance(engine, ContextEngine)
    assert engine.name == "your-name"

def test_compress_returns_valid_messages():
    engine = YourEngine(context_length=200000)
    msgs: list[Message] = [{"role": "user", "content": "hello"}]
    result = engine.compress(msgs)
    assert isinstance(result, list)
    assert all("role" in m for m in result)
"""


def run(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "COV"))} | environ
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def python(code: str, *, cwd: Path, path: Path | None = None, **environ: str) -> str:
    """Run code in a process of its own and return what it prints."""
    extra = {"PYTHONPATH": str(path)} if path else {}
    done = run("-c", textwrap.dedent(code), cwd=cwd, LEPORELLO_HOME=str(cwd / "home"), **extra, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """Return a folder with a package that is called and looks like Hermes Agent's."""
    package = tmp_path / "real" / "agent"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("REAL = True\n")
    (package / "context_engine.py").write_text(REAL_CONTRACT)
    (package / "own_module.py").write_text("")
    return package.parent


def test_importing_leporello_installs_nothing(tmp_path: Path) -> None:
    code = """
    import sys
    before = list(sys.meta_path)
    import leporello, leporello.plugins, leporello.plugins.hermes, leporello.engine
    assert sys.meta_path == before
    try:
        import agent
    except ModuleNotFoundError as error:
        print(error)
    """
    assert python(code, cwd=tmp_path) == "No module named 'agent'"


@pytest.mark.slow
def test_the_compressor_alone_installs_nothing(tmp_path: Path) -> None:
    code = """
    import sys, leporello
    leporello.load_engine()
    from leporello.plugins import hermes
    print(hermes.installed())
    """
    assert python(code, cwd=tmp_path) == "False"


@pytest.mark.slow
def test_every_provided_name_can_be_imported_and_the_contract_is_the_one_class(tmp_path: Path) -> None:
    code = """
    from importlib import import_module
    import leporello
    from leporello.plugins import hermes
    hermes.install()
    for name in hermes.PROVIDED:
        if not name.startswith("plugins"):
            import_module(name)
    from agent.context_engine import ContextEngine
    from agent.context_compressor import ContextCompressor
    from agent.auxiliary_client import call_llm
    from agent.redact import redact_sensitive_text
    from agent.model_metadata import estimate_messages_tokens_rough, estimate_tokens_rough, get_model_context_length
    from hermes_constants import get_hermes_home
    from hermes_cli.config import get_hermes_home as same, load_config
    assert ContextEngine is leporello.ContextEngine is leporello.engine.ContextEngine
    assert issubclass(ContextCompressor, ContextEngine)
    assert estimate_tokens_rough("hello world") > 0 and estimate_tokens_rough(None) == 0
    assert estimate_messages_tokens_rough([{"role": "user", "content": "hello"}]) > 0
    assert get_model_context_length("m", config_context_length=5) == 5
    assert get_model_context_length("gpt-5.5", provider="openai-codex") == 272_000
    assert get_model_context_length("nobody-knows-it") == 256_000
    assert "sk-proj" not in redact_sensitive_text("key sk-proj-" + "a1B2" * 12, force=True)
    assert redact_sensitive_text(None) is None
    assert load_config()["context"]["engine"] == "compressor"
    print(get_hermes_home() == same(), get_hermes_home())
    """
    assert python(code, cwd=tmp_path) == f"True {tmp_path / 'home'}"


@pytest.mark.parametrize("name", ["agent.memory_provider", "agent.context_engine.deeper", "hermes_cli.plugins"])
def test_an_unknown_name_is_told_what_is_provided(tmp_path: Path, name: str) -> None:
    code = f"""
    from leporello.plugins import hermes
    hermes.install()
    try:
        import {name}
    except ModuleNotFoundError as error:
        print(error.name, "|", error)
    """
    said = python(code, cwd=tmp_path)
    assert said.startswith(f"{name} | No module named '{name}'")
    if name != "agent.context_engine.deeper":
        assert all(provided in said for provided in PROVIDED if provided.count(".") == 1 and "plugins" not in provided)


def test_plugins_is_nobodys_name_until_an_engine_is_loaded(plugins: Plugins, tmp_path: Path) -> None:
    plugins.engine("alpha")
    code = """
    import leporello
    from leporello.plugins import hermes
    hermes.install()
    try:
        import plugins
    except ModuleNotFoundError as error:
        print(error)
    engine = leporello.load_engine(name="alpha")
    from plugins.context_engine.alpha import Engine
    print(type(engine) is Engine)
    """
    assert python(code, cwd=tmp_path) == "No module named 'plugins'\nTrue"


@pytest.mark.slow
def test_a_real_package_is_used_and_isinstance_holds_both_ways(tmp_path: Path, real: Path) -> None:
    code = f"""
    import leporello
    from leporello.compressor import ContextCompressor
    from leporello.plugins import hermes
    hermes.install()
    import agent
    from agent.context_engine import ContextEngine
    assert agent.REAL and ContextEngine is not leporello.ContextEngine
    {textwrap.indent(THEIR_ENGINE, "    ").strip()}
    class Plain: ...
    print(isinstance(ContextCompressor(), ContextEngine), isinstance(Theirs(), leporello.ContextEngine))
    print(isinstance(Plain(), ContextEngine), isinstance(Plain(), leporello.ContextEngine))
    class Later(ContextCompressor): ...
    print(isinstance(Later(), ContextEngine), issubclass(leporello.ContextEngine, ContextEngine))
    import agent.own_module
    try:
        import agent.redact
    except ModuleNotFoundError as error:
        print(error)
    """
    assert python(code, cwd=tmp_path, path=real).splitlines() == [
        "True True",
        "False False",
        "True True",
        "No module named 'agent.redact'",
    ]


@pytest.mark.slow
def test_a_real_package_that_was_there_first_is_joined_too(tmp_path: Path, real: Path) -> None:
    code = """
    from agent.context_engine import ContextEngine
    from leporello.compressor import ContextCompressor
    before = isinstance(ContextCompressor(), ContextEngine)
    from leporello.plugins import hermes
    hermes.install()
    print(before, isinstance(ContextCompressor(), ContextEngine))
    """
    assert python(code, cwd=tmp_path, path=real) == "False True"


@pytest.mark.slow
def test_an_engine_on_the_real_contract_can_be_loaded(plugins: Plugins, tmp_path: Path, real: Path) -> None:
    plugins.broken("theirs", "from agent.context_engine import ContextEngine\n" + THEIR_ENGINE)
    code = """
    import warnings
    warnings.simplefilter("error")
    import leporello
    engine = leporello.load_engine(name="theirs", context_length=1000)
    from agent.context_engine import ContextEngine
    print(engine.name, engine.context_length, ContextEngine in type(engine).__mro__)
    print(leporello.load_engine(name="theirs", context_length=1000) is not engine)
    """
    assert python(code, cwd=tmp_path, path=real) == "theirs 1000 True\nTrue"


def test_our_own_commands_stand_before_a_real_package(tmp_path: Path, real: Path) -> None:
    code = """
    import leporello
    from leporello.plugins import hermes
    hermes.install()
    hermes.install(first=True)
    from agent.context_engine import ContextEngine
    from agent.auxiliary_client import call_llm
    print(ContextEngine is leporello.ContextEngine, call_llm.__module__)
    try:
        import agent.own_module
    except ModuleNotFoundError as error:
        print("provides agent.auxiliary_client" in str(error))
    """
    assert python(code, cwd=tmp_path, path=real) == "True leporello.plugins.hermes.host\nTrue"


def test_a_package_that_is_only_called_agent_keeps_its_modules_and_gets_the_missing_ones(tmp_path: Path) -> None:
    package = tmp_path / "other" / "agent"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("MINE = True\n")
    (package / "loop.py").write_text("")
    code = """
    import leporello
    from leporello.plugins import hermes
    hermes.install()
    import agent, agent.loop
    from agent.context_engine import ContextEngine
    print(agent.MINE, ContextEngine is leporello.ContextEngine)
    try:
        import agent.missing
    except ModuleNotFoundError as error:
        print(error)
    """
    assert python(code, cwd=tmp_path, path=package.parent) == "True True\nNo module named 'agent.missing'"


def test_a_foreign_class_of_that_name_is_left_alone(tmp_path: Path, real: Path) -> None:
    (real / "agent" / "context_engine.py").write_text("class ContextEngine:\n    pass\n")
    code = """
    import leporello
    from leporello.plugins import hermes
    hermes.install()
    from agent.context_engine import ContextEngine
    print(isinstance(ContextEngine(), leporello.ContextEngine))
    """
    assert python(code, cwd=tmp_path, path=real) == "False"


def test_the_finders_can_be_taken_away(tmp_path: Path) -> None:
    code = """
    import sys
    from leporello.plugins import hermes
    before = list(sys.meta_path)
    hermes.install(first=True)
    hermes.uninstall()
    print(sys.meta_path == before, hermes.installed())
    """
    assert python(code, cwd=tmp_path) == "True False"


def test_a_plain_script_runs_with_the_names(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("VALUE = 1\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, neighbour\nfrom agent.context_engine import ContextEngine\n"
        "print(__name__, sys.argv[1:], ContextEngine.__module__)\n"
    )
    done = run("-m", "leporello.plugins.hermes", str(script), "a", "--b", cwd=tmp_path)
    assert done.stdout.strip() == "__main__ ['a', '--b'] leporello.engine.base"
    assert run(str(script), cwd=tmp_path).returncode == 1, "without it the names are missing"


def test_a_missing_script_is_a_line_not_a_traceback(tmp_path: Path) -> None:
    done = run("-m", "leporello.plugins.hermes", "missing.py", cwd=tmp_path)
    assert (done.returncode, "there is no such file" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
    assert run("-m", "leporello.plugins.hermes", cwd=tmp_path).returncode == 2


def test_the_pytest_plugin_loads_nothing_but_the_standard_library(tmp_path: Path) -> None:
    code = """
    import sys
    before = set(sys.modules)
    import leporello.plugins.hermes.pytest_plugin
    new = {name.partition(".")[0] for name in set(sys.modules) - before}
    print(sorted(new - set(sys.stdlib_module_names)))
    """
    assert python(code, cwd=tmp_path) == "['leporello']"


@pytest.mark.slow
@pytest.mark.parametrize("beside_a_real_one", [False, True])
def test_the_documented_test_of_an_engine_passes_as_it_stands(
    tmp_path: Path, real: Path, *, beside_a_real_one: bool
) -> None:
    folder = tmp_path / "your_engine"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("test_*", "__pycache__"))
    code = (folder / "__init__.py").read_text().replace('return "keep_last_engine"', 'return "your-name"')
    (folder / "__init__.py").write_text(code)
    test = f"from . import KeepLastEngine as YourEngine\n{DOCUMENTED_TEST}"
    (folder / "test_documented.py").write_text(test)
    path = {"PYTHONPATH": str(real)} if beside_a_real_one else {}
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_documented.py")
    done = run(*command, cwd=folder, **path)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    (folder / "test_documented.py").write_text(test.replace("your-name", "another-name"))
    assert "1 failed" in run(*command, cwd=folder, **path).stdout, "an engine with a wrong name is caught"


def test_call_llm_reaches_the_routed_model_and_answers_like_a_chat_completion() -> None:
    llm = ScriptedLLM("a summary")
    messages: list[Message] = [{"role": "user", "content": "Summarise."}]
    with host.route_llm(llm):
        answer = host.call_llm(
            "compression", messages=messages, temperature=0.3, max_tokens=99, timeout=7, main_runtime={}
        )
    assert answer.choices[0].message.content == "a summary"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens >= 0
    call = llm.calls[0]
    assert (call.max_tokens, call.timeout) == (99, 7)


def test_routes_nest_and_end() -> None:
    outer, inner = ScriptedLLM(["outer", "outer"]), ScriptedLLM("inner")

    def ask() -> Any:
        return host.call_llm(task="compression", messages=[{"role": "user", "content": "?"}]).choices[0].message.content

    with host.route_llm(outer):
        with host.route_llm(inner):
            assert ask() == "inner"
        assert ask() == "outer"


def test_errors_of_the_model_reach_the_plugin() -> None:
    with host.route_llm(ScriptedLLM(NetworkError("no route"))), pytest.raises(NetworkError):
        host.call_llm(messages=[{"role": "user", "content": "?"}])


def test_without_a_model_the_plugin_is_told_what_to_set(plugins: Plugins) -> None:
    plugins.engine("alpha")
    plugins.load("alpha")
    with pytest.raises(RuntimeError, match="set OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY"):
        host.call_llm(messages=[{"role": "user", "content": "?"}])
    with host.route_llm(None), pytest.raises(RuntimeError, match="no model is configured"):
        host.call_llm(messages=[{"role": "user", "content": "?"}])


def test_a_loaded_plugin_reaches_the_model_that_it_was_loaded_with(plugins: Plugins) -> None:
    code = """
    def compress(self, messages, current_tokens=None, focus_topic=None):
        from agent.auxiliary_client import call_llm
        from hermes_constants import get_hermes_home
        text = call_llm(task="compression", messages=messages, model="m").choices[0].message.content
        return [{"role": "user", "content": f"{text} {get_hermes_home().name}"}]

    Engine.compress = compress
    """
    plugins.engine("alpha", code)
    loaded = plugins.load("alpha", llm=ScriptedLLM("short"))
    assert loaded.engine.compress([{"role": "user", "content": "long"}]) == [{"role": "user", "content": "short home"}]
