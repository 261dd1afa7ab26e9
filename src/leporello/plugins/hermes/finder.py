"""Finders for the import names of Hermes Agent. Standard library only: this loads in every pytest run.

Two finders, because they must stand at different ends of `sys.meta_path`:

- `Shims` answers the names in `PROVIDED`, and says what is provided when a plugin asks for more. It stands last, behind
  everything that is really installed; our own commands put it first.
- `ContractFinder` provides nothing. It sees a real `agent.context_engine` arrive and makes the two base classes know
  each other, and it keeps a plugin's modules single when the plugin imports them under `plugins.context_engine.<name>`
  too.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

CONTRACT = "agent.context_engine"
ENGINES = "plugins.context_engine"
PRIVATE = "_leporello_plugin_"  # how the modules of plugins are really called

PACKAGES = ("agent", "hermes_cli", "plugins", ENGINES)
PROVIDED = (
    "agent",
    "agent.auxiliary_client",
    "agent.context_compressor",
    CONTRACT,
    "agent.model_metadata",
    "agent.prompt_caching",
    "agent.redact",
    "hermes_cli",
    "hermes_cli.config",
    "hermes_constants",
    "plugins",
    ENGINES,
)
"""The module names that are answered."""

_SHIMS = Path(__file__).with_name("shims")
_loaded: dict[str, str] = {}  # engine folder's name -> its module's private name


def install(*, first: bool = False) -> None:
    """Make the names importable: behind everything else, or before it. Once first, they stay first."""
    if not installed():
        sys.meta_path.insert(0, _watch)
        sys.meta_path.append(_shims)
    if first and not _shims.first:
        _shims.first = True
        sys.meta_path.remove(_shims)
        sys.meta_path.insert(0, _shims)
    if CONTRACT in sys.modules and not _is_shim("agent"):
        _join(sys.modules[CONTRACT])


def installed() -> bool:
    """Tell whether the names are importable."""
    return _shims in sys.meta_path


def uninstall() -> None:
    """Take the finders away again; modules that were imported stay."""
    for finder in (_watch, _shims):
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
    _shims.first = False


def name_engine(name: str, module: str) -> None:
    """Let `plugins.context_engine.<name>` lead to the module of an engine folder."""
    alias = f"{ENGINES}.{name}"
    if _loaded.get(name) != module:
        for stale in [key for key in sys.modules if key == alias or key.startswith(f"{alias}.")]:
            if sys.modules[stale].__name__.startswith(PRIVATE):
                del sys.modules[stale]
    _loaded[name] = module


class Shims(MetaPathFinder):
    """Answers the provided names from the files in `shims/`."""

    first = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return a shim, the module of a loaded engine, or nothing; an unknown name below our packages is an error."""
        parent, _, child = fullname.rpartition(".")
        if parent == ENGINES and child in _loaded:
            return ModuleSpec(fullname, _Alias(_loaded[child]), is_package=True)
        if fullname in PROVIDED:
            return self._shim(fullname, path)
        if _is_shim(parent):
            names = ", ".join(name for name in PROVIDED if name not in PACKAGES)
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: Leporello stands in for Hermes Agent here and provides {names}",
                name=fullname,
            )
        return None

    def _shim(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        if fullname in ("plugins", ENGINES) and not _loaded:
            return None  # so common a name is taken only when an engine's own code can ask for it
        if fullname.startswith("agent.") and not self.first and not _is_shim("agent") and _is_hermes(path):
            return None  # what a real Hermes does not have is missing, also for the plugins that look for it
        file = _SHIMS.joinpath(*fullname.split("."))
        if fullname in PACKAGES:
            return spec_from_file_location(fullname, file / "__init__.py", submodule_search_locations=[])
        return spec_from_file_location(fullname, file.with_suffix(".py"))


class ContractFinder(MetaPathFinder):
    """Sees the real contract arrive, and keeps a plugin's modules single."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the real contract's spec with one more step at its end, an alias, or nothing."""
        if fullname == CONTRACT and not _is_shim("agent"):
            spec = PathFinder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Joining(spec.loader)
            return spec
        parent, _, child = fullname.rpartition(".")
        if parent.startswith(f"{ENGINES}."):
            real = getattr(sys.modules.get(parent), "__name__", "")
            if real.startswith(PRIVATE):
                return ModuleSpec(fullname, _Alias(f"{real}.{child}"))
        return None


class _Alias(Loader):
    """Lets a second name lead to a module instead of loading it twice."""

    def __init__(self, real: str) -> None:
        self._real = real

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(self._real)


class _Joining(Loader):
    """Loads the real contract as its own loader does, then introduces the two base classes to each other."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _join(module)


def _join(module: ModuleType) -> None:
    from leporello.plugins.hermes.join import join

    join(getattr(module, "ContextEngine", None))


def _is_shim(name: str) -> bool:
    """Tell whether an imported module is one of ours."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and _SHIMS in Path(file).parents


def _is_hermes(path: Sequence[str] | None) -> bool:
    """Tell whether a package that is called `agent` is Hermes Agent's."""
    return PathFinder.find_spec(CONTRACT, path) is not None


_watch = ContractFinder()
_shims = Shims()
