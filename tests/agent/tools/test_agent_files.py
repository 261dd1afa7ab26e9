"""Files are read page by page, written in one step, and found by name and content."""

import os
import resource
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from inline_snapshot import snapshot

from leporello.agent.tools import Action, Toolbox, ToolOutcome, Workspace
from leporello.agent.tools.search_files import search_files
from leporello.messages import ToolCall

Call = Callable[..., ToolOutcome]


def prepared(toolbox: Toolbox, name: str, **arguments: object) -> Action:
    action = toolbox.prepare(ToolCall(id="c", name=name, arguments=dict(arguments), raw="{}"))
    assert isinstance(action, Action)
    return action


def test_a_page_says_where_it_is_and_how_to_read_on(root: Path, call: Call) -> None:
    (root / "log.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    assert call("read_file", path="log.txt", offset=4, limit=3).text == snapshot("""\
log.txt, lines 4 to 6 of 10, 71 bytes
line 4
line 5
line 6
[read on with offset 7]\
""")
    assert call("read_file", path="log.txt", offset=9).text == snapshot("""\
log.txt, lines 9 to 10 of 10, 71 bytes
line 9
line 10\
""")
    assert call("read_file", path="log.txt", offset=11) == snapshot(
        ToolOutcome(text="Error: log.txt ends before line 11", failed=True)
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.text(st.characters(codec="utf-8", categories=["L", "N"]), max_size=12), min_size=1, max_size=30),
    limit=st.integers(1, 7),
)
def test_reading_on_shows_every_line_once(root: Path, call: Call, lines: list[str], limit: int) -> None:
    (root / "f.txt").write_text("\n".join(lines) + "\n")
    read: list[str] = []
    while True:
        page = call("read_file", path="f.txt", offset=len(read) + 1, limit=limit).text.split("\n")
        more = page[-1] == f"[read on with offset {len(read) + limit + 1}]"
        read += page[1:-1] if more else page[1:]
        if not more:
            break
    assert read == lines


def test_what_cannot_be_read_as_text_is_said(root: Path, call: Call) -> None:
    (root / "empty").write_text("")
    (root / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    (root / "latin.txt").write_bytes(b"caf\xe9\n")
    (root / "evil.txt").write_text("\x1b]0;owned\x07\x1b[2J\n")
    (root / "windows.txt").write_bytes(b"one\r\ntwo\r\n")
    assert call("read_file", path="empty").text == snapshot("empty is empty.")
    assert call("read_file", path="image.png").text == snapshot(
        "Error: image.png is a binary file of 10 bytes, not text; the terminal can look into it (file, xxd, strings)"
    )
    assert call("read_file", path="latin.txt").text == snapshot("""\
latin.txt, lines 1 to 1 of 1, 5 bytes
caf�\
""")
    assert call("read_file", path="evil.txt").text == snapshot("""\
evil.txt, lines 1 to 1 of 1, 15 bytes (control characters are shown as pictures, such as ␛)
␛]0;owned␇␛[2J\
""")
    assert call("read_file", path="windows.txt").text == snapshot("""\
windows.txt, lines 1 to 2 of 2, 10 bytes
one
two\
""")
    assert call("read_file", path="nothing.txt") == snapshot(
        ToolOutcome(
            text="Error: there is no file nothing.txt; search_files with target files finds it by its name", failed=True
        )
    )


def test_a_folder_is_listed(root: Path, call: Call) -> None:
    (root / "d" / "sub").mkdir(parents=True)
    (root / "d" / "we\nird\x1b").write_text("")
    for n in range(150):
        (root / "d" / f"f{n:03}").write_text("")
    text = call("read_file", path="d").text
    assert text.startswith("d is a folder; it holds 152:\nf000\n")
    assert text.endswith("[… 52 more; search_files with target files finds them …]")


def test_long_lines_and_long_files_stay_within_the_limits(root: Path, call: Call) -> None:
    (root / "one_line.js").write_text("x" * 3_000_000 + "\nend\n")
    (root / "wide.txt").write_text(("y" * 1_500 + "\n") * 2_000)
    assert call("read_file", path="one_line.js").text.split("\n") == [
        "one_line.js, lines 1 to 2 of 2, 3,000,005 bytes",
        "x" * 2_000 + " [… 2,998,000 more characters in this line]",
        "end",
    ]
    wide = call("read_file", path="wide.txt", limit=2_000).text
    assert len(wide) < 45_000
    assert wide.endswith("[read on with offset 28]")


def test_a_sparse_file_of_a_terabyte_is_answered_at_once(root: Path, call: Call) -> None:
    with (root / "huge.log").open("wb") as file:
        file.write(b"first line\n" * 20_000)
        file.truncate(1 << 40)
    assert call("read_file", path="huge.log", limit=1).text == snapshot("""\
huge.log, lines 1 to 1 of many, 1,099,511,627,776 bytes
first line
[read on with offset 2]\
""")


def test_a_file_is_written_with_its_folders(root: Path, call: Call) -> None:
    assert call("write_file", path="src/new/app.py", content="a = 1\n") == snapshot(
        ToolOutcome(text="wrote src/new/app.py: 1 line, 6 bytes")
    )
    assert (root / "src/new/app.py").read_text() == "a = 1\n"
    assert stat.S_IMODE((root / "src/new/app.py").stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_file_keeps_its_mode_and_others_see_old_or_new(root: Path, call: Call) -> None:
    script = root / "run.sh"
    script.write_text("old")
    script.chmod(0o751)
    with script.open() as reader:
        call("write_file", path="run.sh", content="new")
        assert reader.read() == "old"
    assert script.read_text() == "new"
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    assert sorted(entry.name for entry in root.iterdir()) == ["run.sh"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_a_file_keeps_its_owner(root: Path, call: Call) -> None:
    (root / "theirs.txt").write_text("old")
    os.chown(root / "theirs.txt", 12345, 12346)
    call("write_file", path="theirs.txt", content="new")
    status = (root / "theirs.txt").stat()
    assert (status.st_uid, status.st_gid) == (12345, 12346)


def test_a_full_disk_leaves_the_old_file(root: Path, toolbox: Toolbox) -> None:
    """The limit on the size of files makes the write fail half-way, as a full disk does."""
    (root / "a.txt").write_text("old")
    action = prepared(toolbox, "write_file", path="a.txt", content="x" * 200_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        outcome = toolbox.do(action, Event())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert outcome == snapshot(ToolOutcome(text="Error: a.txt: File too large", failed=True))
    assert (root / "a.txt").read_text() == "old"
    assert [entry.name for entry in root.iterdir()] == ["a.txt"]


def test_a_hard_link_is_not_written_through(root: Path, call: Call) -> None:
    secret = root.parent / "outside" / "secret.txt"
    (root / "hard.txt").hardlink_to(secret)
    call("write_file", path="hard.txt", content="changed")
    assert secret.read_text() == "the neighbour's secret\n"


def test_a_link_inside_stays_a_link(root: Path, call: Call) -> None:
    (root / "real.txt").write_text("old")
    (root / "link.txt").symlink_to("real.txt")
    assert call("write_file", path="link.txt", content="new").text.startswith("wrote real.txt")
    assert (root / "link.txt").is_symlink()
    assert (root / "real.txt").read_text() == "new"


def test_a_passage_is_replaced(root: Path, call: Call) -> None:
    (root / "a.py").write_text("x = 1\ny = 2\nx = 1\n")
    (root / "w.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    assert call("write_file", path="a.py", content="y = 3", replaces="y = 2").text == snapshot(
        "wrote a.py: 3 lines, 18 bytes"
    )
    assert (root / "a.py").read_text() == "x = 1\ny = 3\nx = 1\n"
    assert call("write_file", path="a.py", content="z", replaces="x = 1").text == snapshot(
        "Error: the passage to replace stands 2 times in a.py; take more of the lines around it"
    )
    assert call("write_file", path="a.py", content="z", replaces="q").text == snapshot(
        "Error: the passage to replace is not in a.py; read the file again and copy it exactly"
    )
    assert call("write_file", path="b.py", content="z", replaces="q").text == snapshot(
        "Error: there is no file b.py; without replaces it is written anew"
    )
    assert not call("write_file", path="w.txt", content="2\n2b", replaces="two\nthree").failed
    assert (root / "w.txt").read_bytes() == b"one\r\n2\r\n2b\r\n"


def test_nothing_is_written_where_nothing_may_be(root: Path, call: Call) -> None:
    (root / "locked.txt").write_text("keep")
    (root / "locked.txt").chmod(0o444)
    os.mkfifo(root / "pipe")
    (root / "out").symlink_to(root.parent / "outside")
    (root / "file").write_text("")
    for path in ["locked.txt", "pipe", "out/new.txt", ".", "file/x.txt", "../new.txt", "x" * 300, "/tmp/leporello-x"]:
        assert call("write_file", path=path, content="changed").failed, path
    assert (root / "locked.txt").read_text() == "keep"
    assert sorted(entry.name for entry in (root.parent / "outside").iterdir()) == ["secret.txt"]
    assert call("write_file", path="half.txt", content="\ud800").text == snapshot(
        "Error: content holds half a character (a lone surrogate) at position 0"
    )


def test_preparing_changes_nothing(root: Path, toolbox: Toolbox) -> None:
    prepared(toolbox, "write_file", path="a/b.txt", content="x")
    prepared(toolbox, "terminal", command="touch made")
    assert list(root.iterdir()) == []


def test_a_change_while_the_user_thinks_is_not_overwritten(root: Path, toolbox: Toolbox) -> None:
    (root / "a.txt").write_text("mine")
    action = prepared(toolbox, "write_file", path="a.txt", content="the model's")
    fresh = prepared(toolbox, "write_file", path="b.txt", content="the model's")
    (root / "a.txt").write_text("mine, edited")
    (root / "b.txt").write_text("mine, made")
    for prepared_action in (action, fresh):
        assert "changed by another program" in toolbox.do(prepared_action, Event()).text
    assert (root / "a.txt").read_text() == "mine, edited"
    assert (root / "b.txt").read_text() == "mine, made"
    assert sorted(entry.name for entry in root.iterdir()) == ["a.txt", "b.txt"]


def test_what_is_confirmed_is_shown_as_a_difference(root: Path, toolbox: Toolbox) -> None:
    (root / "a.py").write_text("one\ntwo\nthree\n")
    action = prepared(toolbox, "write_file", path="a.py", content="one\n2\x1b[8m\nthree\n")
    assert (action.title, action.detail) == snapshot(
        (
            "write a.py (3 lines, was 3 lines)",
            """\
--- before
+++ after
@@ -1,3 +1,3 @@
 one
-two
+2␛[8m
 three\
""",
        )
    )


def test_everything_that_is_confirmed_can_be_seen(root: Path, toolbox: Toolbox) -> None:
    """Neither the thousandth line nor the thousandth column is a place to hide something."""
    content = "a\n" * 1_000 + "b" * 1_000 + "hidden\n" + "c\n" * 5_000
    assert prepared(toolbox, "write_file", path="new.txt", content=content).detail == content.rstrip("\n")
    (root / "old.txt").write_text("a\n")
    assert "b" * 1_000 + "hidden" in prepared(toolbox, "write_file", path="old.txt", content=content).detail


def test_a_change_of_nothing_but_line_ends_is_seen(root: Path, toolbox: Toolbox) -> None:
    (root / "a.txt").write_bytes(b"one\r\ntwo\x0cthree\nfour\n")
    action = prepared(toolbox, "write_file", path="a.txt", content="one\ntwo\nthree\nfour")
    assert action.detail == snapshot("""\
--- before
+++ after
@@ -1,3 +1,5 @@
-one␍
-two␌three
+one
+two
+three
 four
+[no line end]\
""")
    same = prepared(toolbox, "write_file", path="a.txt", content="one\r\ntwo\x0cthree\nfour\n")
    assert same.detail == snapshot("nothing changes")


@pytest.fixture
def tree(root: Path) -> Path:
    (root / "src").mkdir()
    (root / "src" / "app.py").write_text("import os\n\ndef Main():\n    return os.name\n")
    (root / "src" / "util.py").write_text("def main(): pass\n" + "x" * 400 + " main " + "y" * 400 + "\n")
    (root / "README.md").write_text("main entry: src/app.py\n")
    (root / "data.bin").write_bytes(b"main\x00")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("main = 1\n")
    (root / "out").symlink_to(root.parent / "outside")
    (root / "secret-link.txt").symlink_to(root.parent / "outside" / "secret.txt")
    os.mkfifo(root / "pipe")
    return root


def test_lines_are_found(tree: Path, call: Call) -> None:
    assert call("search_files", pattern="main").text.replace("x" * 60, "").replace("y" * 60, "") == snapshot("""\
README.md:1: main entry: src/app.py
src/util.py:1: def main(): pass
src/util.py:2: …xxxxxxxxxxxxxxxxxxx main yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy…
[3 results, 6 files searched; passed over: 1 binary, 2 link, special or unreadable]\
""")
    assert call("search_files", pattern="main", ignore_case=True, file_glob="*.py", limit=2).text == snapshot("""\
src/app.py:3: def Main():
src/util.py:1: def main(): pass
[2 results, 2 files searched; there are more: go on with offset 2 or narrow the search]\
""")
    assert call("search_files", pattern=r"^def \w+", regex=True).text == snapshot("""\
src/app.py:3: def Main():
src/util.py:1: def main(): pass
[2 results, 6 files searched; passed over: 1 binary, 2 link, special or unreadable]\
""")
    assert call("search_files", pattern="main", path=".git").text == snapshot("""\
.git/config:1: main = 1
[1 result, 1 file searched]\
""")
    assert call("search_files", pattern="os", path="src/app.py").text == snapshot("""\
src/app.py:1: import os
src/app.py:4: return os.name
[2 results, 1 file searched]\
""")
    assert call("search_files", pattern="nowhere at all").text == snapshot(
        "[nothing found, 6 files searched; passed over: 1 binary, 2 link, special or unreadable]"
    )


def test_names_are_found(tree: Path, call: Call) -> None:
    assert call("search_files", pattern="*.py", target="files").text == snapshot("""\
src/app.py
src/util.py
[2 results, 6 files searched]\
""")
    assert call("search_files", pattern="readme", target="files", ignore_case=True).text == snapshot("""\
README.md
[1 result, 6 files searched]\
""")
    assert call("search_files", pattern=r"(app|util)\.py$", target="files", regex=True, limit=1).text == snapshot("""\
src/app.py
[1 result, 6 files searched; there are more: go on with offset 1 or narrow the search]\
""")


def test_searching_stays_inside(tree: Path, call: Call) -> None:
    assert "neighbour" not in call("search_files", pattern="secret").text
    assert "neighbour" not in call("search_files", pattern="neighbour", regex=True).text.partition("[")[0]
    assert call("search_files", pattern="secret", path="out").failed
    assert call("search_files", pattern="secret", path="..").failed


def test_going_on_with_an_offset_finds_everything_once(root: Path, call: Call) -> None:
    (root / "f.txt").write_text("".join(f"hit {n}\n" for n in range(25)))
    found: list[str] = []
    while True:
        *lines, end = call("search_files", pattern="hit", limit=10, offset=len(found)).text.split("\n")
        found += lines
        if "there are more" not in end:
            break
    assert found == [f"f.txt:{n + 1}: hit {n}" for n in range(25)]


def test_a_broken_expression_is_answered(tree: Path, call: Call) -> None:
    assert "cannot be read: missing )" in call("search_files", pattern="(", regex=True).text
    assert not call("search_files", pattern="[[a]", regex=True).failed


def test_an_expression_that_never_ends_is_stopped(root: Path) -> None:
    (root / "a.txt").write_text("a" * 4_000 + "!\n")
    tool = search_files(Workspace(root), seconds=0.3)
    answer = tool.action({"pattern": "(a|aa)+$", "regex": True}).do(Event())
    assert answer.startswith("[nothing found, 1 file searched; the search was stopped after 0.3 s; narrow it with path")


def test_a_search_in_a_deep_tree_ends(root: Path, call: Call) -> None:
    folder = root
    for _ in range(180):
        folder /= "d"
        folder.mkdir()
    (folder / "deep.txt").write_text("x")
    assert not call("search_files", pattern="x").failed


class StopAfter:
    """A user who wants the turn to end after some looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def is_set(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_a_search_that_passes_everything_over_can_be_ended_too(root: Path) -> None:
    """Neither many folders without files nor files that no glob fits keep the user waiting, or the time running."""
    for number in range(40):
        (root / f"d{number:02}").mkdir()
        (root / f"d{number:02}" / "a.txt").touch()
    stop = StopAfter(10)
    action = search_files(Workspace(root)).action({"pattern": "x", "file_glob": "*.py"})
    assert action.do(stop) == snapshot("[nothing found, 0 files searched]")
    assert stop.looks == -1
    ticks = iter(range(1_000))
    timed = search_files(Workspace(root), seconds=20, clock=lambda: float(next(ticks)))
    told = timed.action({"pattern": "x", "file_glob": "*.py"}).do(Event())
    assert "the search was stopped after 20 s" in told


def test_a_line_without_end_can_be_left(root: Path, toolbox: Toolbox) -> None:
    (root / "long.txt").write_bytes(b"a" * 3_000_000)
    stop = StopAfter(3)
    prepared(toolbox, "read_file", path="long.txt").do(stop)
    assert stop.looks >= -3  # the rest of the line, and of the file, was not read
