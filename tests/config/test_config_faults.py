"""A write that fails, or a process that dies while it writes, leaves a whole file: the old one or the new one."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from leporello.config import Config
from leporello.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

OLD = "# mine\ncompression:\n  threshold: 0.5\n" + "# a long comment\n" * 2_000

OURS = "from leporello.config.edit import set_value as change\n"
# The planted defect: an editor that writes into the file itself, half of it first.
CARELESS = """
def change(path, key, value):
    text = open(path).read()
    with open(path, "w") as file:
        file.write(text[: len(text) // 2].replace("0.5", value))
        file.flush()
        print("half", flush=True)
        sys.stdin.readline()
        file.write(text[len(text) // 2 :])
"""

FULL_DISK = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
from leporello.errors import ConfigError
try:
    change(sys.argv[1], "compression.threshold", "0.6")
except (ConfigError, OSError) as error:
    print(f"{type(error).__name__}: {error}", flush=True)
"""

FOR_EVER = """
while True:
    for value in ("0.6", "0.7"):
        change(sys.argv[1], "compression.threshold", value)
        print(value, flush=True)
"""


def run(editor: str, story: str, file: Path) -> subprocess.Popen[str]:
    code = "import sys\n" + editor + story
    return subprocess.Popen(
        [sys.executable, "-c", code, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def assert_whole(file: Path) -> None:
    """The text is the old one but for the value of the threshold."""
    threshold = Config.load(file).compression.threshold
    assert file.read_text() == OLD.replace("0.5", str(threshold))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(OLD)
    return path


def test_a_full_disk_leaves_the_file(file: Path) -> None:
    output, _ = run(OURS, FULL_DISK, file).communicate(timeout=60)
    assert output.startswith(f"ConfigError: {file}: the file cannot be written: File too large. It is unchanged.")
    assert file.read_text() == OLD
    assert [path.name for path in file.parent.iterdir()] == ["config.yaml"]


def test_planted_a_careless_editor_on_a_full_disk_is_caught(file: Path) -> None:
    output, _ = run(CARELESS, FULL_DISK, file).communicate("\n", timeout=60)
    assert "OSError" in output
    with pytest.raises((AssertionError, ConfigError)):
        assert_whole(file)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [1, 4, 9])
def test_a_killed_process_leaves_a_whole_file(file: Path, changes: int) -> None:
    with run(OURS, FOR_EVER, file) as process:
        assert process.stdout is not None
        for _ in range(changes):
            process.stdout.readline()
        process.kill()
    assert_whole(file)
    assert Config.load(file).compression.threshold in {0.6, 0.7}


def test_planted_a_careless_editor_that_is_killed_is_caught(file: Path) -> None:
    with run(CARELESS, FOR_EVER, file) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        process.kill()
    with pytest.raises((AssertionError, ConfigError)):
        assert_whole(file)
