"""How agents are led to a gateway: what is set for each, and the address that it used before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from leporello.cli.agents import agent_of, launch, origins

if TYPE_CHECKING:
    from pathlib import Path

HERE = "http://127.0.0.1:4711"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_agents_are_known_by_the_name_of_their_program() -> None:
    assert [agent_of([word]) for word in ("claude", "/opt/bin/codex", "opencode.exe", "python")] == [
        "claude",
        "codex",
        "opencode",
        "",
    ]


def test_any_program_gets_the_variables_of_the_official_clients_and_litellm(tmp_path: Path) -> None:
    made = launch(["python", "agent.py"], HERE, {"HOME": str(tmp_path)})
    assert made.command == ["python", "agent.py"]
    assert made.variables == {
        "OPENAI_BASE_URL": f"{HERE}/v1",
        "OPENAI_API_BASE": f"{HERE}/v1",
        "ANTHROPIC_BASE_URL": HERE,
        "ANTHROPIC_API_BASE": HERE,
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "LEPORELLO_WRAP": HERE,
    }


def test_a_proxy_is_not_asked_for_this_machine(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "NO_PROXY": "intranet,localhost"}
    assert launch(["aider"], HERE, environ).variables["NO_PROXY"] == "intranet,localhost,127.0.0.1"


class TestClaude:
    def test_the_environment_leads_it(self, tmp_path: Path) -> None:
        made = launch(["claude", "-p", "hi"], HERE, {"HOME": str(tmp_path)})
        assert made.command == ["claude", "-p", "hi"]
        assert made.variables["ANTHROPIC_BASE_URL"] == HERE
        assert made.variables["ENABLE_TOOL_SEARCH"] == "true"
        assert not {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_BASE_URL"} & set(made.variables)

    def test_the_users_word_about_deferred_tools_stands(self, tmp_path: Path) -> None:
        environ = {"HOME": str(tmp_path), "ENABLE_TOOL_SEARCH": "auto:5"}
        assert launch(["claude"], HERE, environ).variables["ENABLE_TOOL_SEARCH"] == "auto:5"

    @pytest.mark.parametrize(
        "file", [".claude/settings.json", ".claude/settings.local.json", "home/.claude/settings.json"]
    )
    def test_an_address_in_its_settings_is_overridden_and_asked_in_turn(self, file: str, tmp_path: Path) -> None:
        settings = tmp_path / file
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": "http://corp:1"}}), encoding="utf-8")
        environ = {"HOME": str(tmp_path / "home"), "ANTHROPIC_BASE_URL": "http://shell:2"}
        assert origins(["claude"], environ)["anthropic"].address == "http://corp:1"
        made = launch(["claude", "--continue"], HERE, environ)
        assert made.command[::2] == ["claude", made.command[2]]
        assert json.loads(made.command[2]) == {"env": {"ANTHROPIC_BASE_URL": HERE}}
        assert made.command[3:] == ["--continue"]

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"env": []}', '{"env": {"ANTHROPIC_BASE_URL": 7}}'])
    def test_settings_that_say_nothing_are_no_trouble(self, text: str, tmp_path: Path) -> None:
        (tmp_path / ".claude").mkdir()
        (tmp_path / ".claude" / "settings.json").write_text(text, encoding="utf-8")
        assert origins(["claude"], {"HOME": str(tmp_path)}) == {}


class TestCodex:
    def test_the_command_line_leads_it_as_it_ignores_the_environment(self, tmp_path: Path) -> None:
        environ = {"HOME": str(tmp_path), "OPENAI_BASE_URL": "http://unread:1"}
        made = launch(["codex", "exec", "hi"], HERE, environ)
        assert made.command == ["codex", "-c", f'openai_base_url="{HERE}/v1"', "exec", "hi"]
        assert "openai" not in origins(["codex"], environ)

    @pytest.mark.parametrize("setting", ["openai_base_url=http://corp:1/v1", 'openai_base_url="http://corp:1/v1"'])
    def test_an_address_on_its_command_line_is_asked_in_turn(self, setting: str, tmp_path: Path) -> None:
        command = ["codex", "-c", "model=x", "-c", setting, "exec"]
        assert origins(command, {"HOME": str(tmp_path)})["openai"].address == "http://corp:1/v1"
        made = launch(command, HERE, {"HOME": str(tmp_path)})
        assert made.command == ["codex", "-c", f'openai_base_url="{HERE}/v1"', "-c", "model=x", "exec"]

    def test_a_provider_of_ones_own_is_asked_in_turn(self, tmp_path: Path) -> None:
        settings = 'model_provider = "corp"\n[model_providers.corp]\nbase_url = "http://corp:1/v1"\n'
        (tmp_path / "config.toml").write_text(settings, encoding="utf-8")
        environ = {"CODEX_HOME": str(tmp_path)}
        assert origins(["codex"], environ)["openai"].address == "http://corp:1/v1"
        assert launch(["codex"], HERE, environ).command[2] == f'model_providers.corp.base_url="{HERE}/v1"'

    @pytest.mark.parametrize(
        "words", [["-c", "model_provider=corp"], ["-c", 'model_provider="corp"'], ["-p", "work"], ["--profile=work"]]
    )
    def test_a_provider_that_its_command_line_chooses_too(self, words: list[str], tmp_path: Path) -> None:
        settings = '[model_providers.corp]\nbase_url = "http://corp:1/v1"\n[profiles.work]\nmodel_provider = "corp"\n'
        (tmp_path / "config.toml").write_text(settings, encoding="utf-8")
        environ = {"CODEX_HOME": str(tmp_path)}
        assert "openai" not in origins(["codex"], environ)
        assert origins(["codex", *words], environ)["openai"].address == "http://corp:1/v1"
        made = launch(["codex", *words], HERE, environ)
        assert made.command == ["codex", "-c", f'model_providers.corp.base_url="{HERE}/v1"', *words]

    def test_planted_a_provider_that_is_not_described_is_not_led(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text('model_provider = "corp"\n', encoding="utf-8")
        assert launch(["codex"], HERE, {"CODEX_HOME": str(tmp_path)}).command[2].startswith("openai_base_url=")


class TestOpenCode:
    def test_its_configuration_in_the_environment_leads_it(self, tmp_path: Path) -> None:
        given = {"model": "anthropic/x", "provider": {"anthropic": {"options": {"timeout": 5}}}}
        environ = {"HOME": str(tmp_path), "OPENCODE_CONFIG_CONTENT": json.dumps(given)}
        made = json.loads(launch(["opencode"], HERE, environ).variables["OPENCODE_CONFIG_CONTENT"])
        assert made["model"] == "anthropic/x"
        assert made["provider"]["anthropic"]["options"] == {"timeout": 5, "baseURL": f"{HERE}/v1"}
        assert made["provider"]["openai"]["options"] == {"baseURL": f"{HERE}/v1"}

    @pytest.mark.parametrize(
        "file",
        [
            "opencode.json",
            "../opencode.jsonc",
            ".opencode/opencode.json",
            "home/.config/opencode/opencode.jsonc",
            "own",
        ],
    )
    def test_an_address_in_its_settings_is_asked_in_turn(
        self, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else the key of one provider would be sent to another."""
        (tmp_path / ".git").mkdir()
        here = tmp_path / "deep"
        here.mkdir()
        monkeypatch.chdir(here)
        settings = here / file
        settings.parent.mkdir(parents=True, exist_ok=True)
        text = """{ // of the company: "baseURL"
          "provider": {"openai": {"options": {"baseURL": "http://corp:1/v1", /* and */ "apiKey": "{env:KEY}",}}, },
        }"""
        settings.write_text(text, encoding="utf-8")
        environ = {"HOME": str(here / "home"), "OPENAI_BASE_URL": "http://shell:2", "ANTHROPIC_BASE_URL": "http://a:3"}
        environ |= {"OPENCODE_CONFIG": str(settings)} if file == "own" else {}
        found = origins(["opencode", "run"], environ)
        assert {name: origin.address for name, origin in found.items()} == {
            "openai": "http://corp:1/v1",
            "anthropic": "http://a:3",
        }

    @pytest.mark.parametrize(
        ("package", "api"), [("@ai-sdk/openai-compatible", "openai"), ("@ai-sdk/anthropic", "anthropic")]
    )
    @pytest.mark.parametrize("words", [["--model", "corp/big"], ["-m", "corp/big"], ["--model=corp/big"], []])
    def test_a_provider_of_ones_own_is_led_alone(
        self, package: str, api: str, words: list[str], tmp_path: Path
    ) -> None:
        corp = {"npm": package, "options": {"baseURL": "{env:CORP}/v1"}, "models": {"big": {}}}
        told = {"provider": {"corp": corp}} | ({} if words else {"model": "corp/big"})
        (tmp_path / "opencode.json").write_text(json.dumps(told), encoding="utf-8")
        environ = {"HOME": str(tmp_path), "CORP": "http://corp:1"}
        command = ["opencode", "run", *words, "hello"]
        assert origins(command, environ)[api].address == "http://corp:1/v1"
        made = json.loads(launch(command, HERE, environ).variables["OPENCODE_CONFIG_CONTENT"])
        other = "anthropic" if api == "openai" else "openai"
        assert made["provider"] == {name: {"options": {"baseURL": f"{HERE}/v1"}} for name in ("corp", other)}

    def test_planted_a_provider_without_an_address_is_not_led(self, tmp_path: Path) -> None:
        environ = {"HOME": str(tmp_path)}
        made = json.loads(launch(["opencode", "-m", "groq/x"], HERE, environ).variables["OPENCODE_CONFIG_CONTENT"])
        assert set(made["provider"]) == {"openai", "anthropic"}


class TestAider:
    def test_the_environment_leads_it(self, tmp_path: Path) -> None:
        environ = {"HOME": str(tmp_path), "OPENAI_API_BASE": "http://shell:2"}
        made = launch(["aider", "a.py"], HERE, environ)
        assert made.command == ["aider", "a.py"]
        assert made.variables["OPENAI_API_BASE"] == f"{HERE}/v1"
        assert origins(["aider"], environ)["openai"].address == "http://shell:2"

    @pytest.mark.parametrize(
        ("file", "text"),
        [
            (".aider.conf.yml", "model: x\nopenai-api-base: http://corp:1/v1 # ours\n"),
            ("home/.aider.conf.yml", "openai-api-base: 'http://corp:1/v1'\n"),
            (".env", "export OPENAI_API_BASE=http://corp:1/v1\n"),
            (".env", 'A=1\nAIDER_OPENAI_API_BASE="http://corp:1/v1"\n'),
        ],
    )
    def test_its_files_are_overridden_and_asked_in_turn(self, file: str, text: str, tmp_path: Path) -> None:
        (tmp_path / "home").mkdir()
        (tmp_path / file).write_text(text, encoding="utf-8")
        environ = {"HOME": str(tmp_path / "home"), "OPENAI_API_BASE": "http://shell:2"}
        assert origins(["aider"], environ)["openai"].address == "http://corp:1/v1"
        assert launch(["aider", "a.py"], HERE, environ).command == ["aider", "a.py", "--openai-api-base", f"{HERE}/v1"]

    @pytest.mark.parametrize(
        "words", [["--openai-api-base", "http://corp:1/v1"], ["--openai-api-base=http://corp:1/v1"]]
    )
    def test_its_command_line_too(self, words: list[str], tmp_path: Path) -> None:
        environ = {"HOME": str(tmp_path)}
        assert origins(["aider", *words], environ)["openai"].address == "http://corp:1/v1"
        assert launch(["aider", *words], HERE, environ).command[-2:] == ["--openai-api-base", f"{HERE}/v1"]

    def test_planted_a_comment_is_no_setting(self, tmp_path: Path) -> None:
        (tmp_path / ".env").write_text("#OPENAI_API_BASE=http://corp:1/v1\n", encoding="utf-8")
        assert origins(["aider"], {"HOME": str(tmp_path)}) == {}
