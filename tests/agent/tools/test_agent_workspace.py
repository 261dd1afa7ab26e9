"""No path leads out of the workspace: not by dots, links, absolute paths, races or special files."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given, settings, strategies as st

from leporello.agent.tools import Workspace
from leporello.agent.tools.workspace import Spot
from leporello.agent.tools.write_file import write_file
from leporello.errors import ToolError

Read = Callable[[Path, str], bytes]


def read(root: Path, path: str) -> bytes:
    """Read a file the way the tools do."""
    workspace = Workspace(root)
    with workspace.file(workspace.resolve(path)) as descriptor:
        return os.read(descriptor, 1_000)


def escapes(root: Path) -> list[str]:
    """Make every kind of way out of a workspace, and return the paths that take them."""
    outside = root.parent / "outside"
    (root / "folder").mkdir()
    (root / "file.txt").write_text("mine\n")
    (root / "link.txt").symlink_to(outside / "secret.txt")
    (root / "relative.txt").symlink_to("../outside/secret.txt")
    (root / "linked").symlink_to(outside)
    (root / "folder" / "up").symlink_to("../..")
    (root / "chain").symlink_to("folder/up/outside")
    (root / "proc").symlink_to(f"/proc/self/cwd{outside}")
    return [
        "../outside/secret.txt",
        "folder/../../outside/secret.txt",
        "./folder/.././../outside/secret.txt",
        str(outside / "secret.txt"),
        f"{root}/../outside/secret.txt",
        f"/{outside}/secret.txt",
        "link.txt",
        "relative.txt",
        "linked/secret.txt",
        "folder/up/outside/secret.txt",
        "chain/secret.txt",
        "proc/secret.txt",
        "file.txt/../../outside/secret.txt",
        "missing/../../outside/secret.txt",
        f"~/../..{outside}/secret.txt",
        f"~root/../..{outside}/secret.txt",
        "link.txt\0.md",
        "\0",
        "folder/up/work/../outside/secret.txt",
    ]


def assert_contained(root: Path, read: Read) -> None:
    """Every way out is refused, with an error for the model."""
    leaks = []
    for path in escapes(root):
        try:
            leaks.append((path, read(root, path)))
        except (ToolError, OSError):
            continue
    assert leaks == []


def test_every_way_out_is_refused(root: Path) -> None:
    assert_contained(root, read)


def without_looking_at_links(root: Path, path: str) -> bytes:
    if "\0" in path or ".." in path.split("/") or path.startswith(("/", "~")):
        raise ToolError("outside")
    return (root / path).read_bytes()


def with_a_prefix_check(root: Path, path: str) -> bytes:
    if "\0" in path or not str(root / path).startswith(str(root)):
        raise ToolError("outside")
    return (root / path).read_bytes()


@pytest.mark.parametrize("defect", [without_looking_at_links, with_a_prefix_check])
def test_the_check_catches_a_weaker_workspace(root: Path, defect: Read) -> None:
    with pytest.raises(AssertionError):
        assert_contained(root, defect)


def write(root: Path, path: str) -> None:
    """Write a file the way the tool does."""
    write_file(Workspace(root)).action({"path": path, "content": "owned"}).do(Event())


def write_by_string(root: Path, path: str) -> None:
    if "\0" in path or ".." in path.split("/") or path.startswith(("/", "~")):
        raise ToolError("outside")
    (root / path).write_text("owned")


def assert_nothing_is_written_outside(root: Path, write: Callable[[Path, str], None]) -> None:
    outside = root.parent / "outside"
    for path in [*escapes(root), "linked/new.txt", "folder/up/outside/new/folder.txt"]:
        with suppress(ToolError, OSError):
            write(root, path)
    assert {found.name: found.read_text() for found in outside.iterdir()} == {"secret.txt": "the neighbour's secret\n"}


def test_nothing_is_written_outside(root: Path) -> None:
    assert_nothing_is_written_outside(root, write)


def test_the_check_catches_writing_through_links(root: Path) -> None:
    with pytest.raises(AssertionError):
        assert_nothing_is_written_outside(root, write_by_string)


def test_what_is_inside_is_reached(root: Path) -> None:
    """Dots, links and absolute paths that stay inside work as everywhere."""
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "f.txt").write_text("here")
    (root / "short").symlink_to("a/b")
    (root / "absolute").symlink_to(root / "a")
    (root / "a" / "back").symlink_to("../short/f.txt")
    (root / "~name").write_text("here")
    paths = [
        "a/b/f.txt",
        "a/../a/./b//f.txt",
        "short/f.txt",
        "absolute/b/f.txt",
        "a/back",
        f"{root}/a/b/f.txt",
        "./~name",
    ]
    assert [read(root, path) for path in paths] == [b"here"] * len(paths)


def test_the_workspace_may_itself_be_reached_by_a_link(root: Path) -> None:
    (root / "f.txt").write_text("here")
    (root.parent / "alias").symlink_to(root)
    alias = Workspace(root.parent / "alias")
    assert alias.resolve(f"{root.parent}/alias/f.txt") == alias.resolve(f"{root}/f.txt") == Spot(parts=("f.txt",))


def test_links_in_a_circle_end(root: Path) -> None:
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    with pytest.raises(ToolError, match="too many links"):
        read(root, "one")


@contextmanager
def _socket(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        yield


def test_pipes_sockets_and_folders_are_refused_without_waiting(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with _socket(root / "socket"):
        for path, kind in [("pipe", "named pipe"), ("socket", "socket"), (".", "folder")]:
            with pytest.raises(ToolError, match=kind):
                read(root, path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_devices_are_refused(root: Path) -> None:
    try:
        os.mknod(root / "zero", 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("devices cannot be made here")
    with pytest.raises(ToolError, match="device"):
        read(root, "zero")


def swapped(root: Path, swap: Callable[[], None], open_at: Callable[[Workspace, Spot], bytes]) -> bytes:
    """Resolve a path, let another program change the folder, and open it."""
    (root / "d").mkdir()
    (root / "d" / "f.txt").write_text("mine")
    workspace = Workspace(root)
    spot = workspace.resolve("d/f.txt")
    swap()
    return open_at(workspace, spot)


def by_descriptor(workspace: Workspace, spot: Spot) -> bytes:
    with workspace.file(spot) as descriptor:
        return os.read(descriptor, 100)


def by_string(workspace: Workspace, spot: Spot) -> bytes:
    return workspace.root.joinpath(*spot.parts).read_bytes()


def swaps(root: Path) -> list[Callable[[], None]]:
    outside = root.parent / "outside"
    (outside / "f.txt").write_text("theirs")

    def the_file() -> None:
        (root / "d" / "f.txt").unlink()
        (root / "d" / "f.txt").symlink_to(outside / "f.txt")

    def the_folder() -> None:
        (root / "d").rename(root / "moved")
        (root / "d").symlink_to(outside)

    return [the_file, the_folder]


@pytest.mark.parametrize("which", [0, 1])
def test_a_link_put_there_at_the_last_moment_is_not_followed(root: Path, which: int) -> None:
    with pytest.raises(ToolError):
        swapped(root, swaps(root)[which], by_descriptor)


@pytest.mark.parametrize("which", [0, 1])
def test_nor_is_it_written_through(root: Path, which: int) -> None:
    """The link comes while the user is asked."""
    swap = swaps(root)[which]
    (root / "d").mkdir()
    (root / "d" / "f.txt").write_text("mine")
    action = write_file(Workspace(root)).action({"path": "d/f.txt", "content": "owned"})
    swap()
    with pytest.raises(ToolError):
        action.do(Event())
    assert (root.parent / "outside" / "f.txt").read_text() == "theirs"


@pytest.mark.parametrize("which", [0, 1])
def test_the_race_is_a_real_one(root: Path, which: int) -> None:
    """Opening by its name what was checked before would have read the neighbour's file."""
    assert swapped(root, swaps(root)[which], by_string) == b"theirs"


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.sampled_from(["a", "b", "c", "..", ".", ""])
PATHS = st.lists(STEPS, min_size=1, max_size=6).map("/".join)
TREES = st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=3), st.one_of(st.none(), PATHS)), max_size=6)


def build(root: Path, tree: list[tuple[list[str], str | None]]) -> None:
    """Make folders and links, as far as they fit together."""
    for names, target in tree:
        place = root.joinpath(*names)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir() if target is None else place.symlink_to(target or ".")
        except OSError:
            continue


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(tree=TREES, path=PATHS)
def test_what_is_accepted_is_where_the_system_says_it_is(tree: list[tuple[list[str], str | None]], path: str) -> None:
    """Against the system's own resolution, over random folders with random links."""
    with tempfile.TemporaryDirectory() as folder:
        root = (Path(folder) / "work").resolve()
        root.mkdir()
        build(root, tree)
        try:
            spot = Workspace(root).resolve(path)
        except ToolError:
            return
        real = os.path.realpath(root / path)
        assert Path(real) == root.joinpath(*spot.parts)
        assert Path(real).is_relative_to(root)


def test_a_missing_workspace_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot be used: No such file"):
        Workspace(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolError, match="not a folder"):
        Workspace(tmp_path / "file")


def test_nothing_stays_open(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "f").write_text("x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ["a/f", "../x", "a/missing/f", "a"]:
        try:
            read(root, path)
        except (ToolError, FileNotFoundError):
            continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before
