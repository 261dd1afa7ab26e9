"""Runs a plugin's code. Whatever it raises becomes a PluginError that says where."""

from __future__ import annotations

import hashlib
import inspect
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from leporello.config.engines import ENGINE_ENTRY_POINTS
from leporello.engine import ContextEngine, ForeignCall
from leporello.errors import PluginError
from leporello.plugins import hermes
from leporello.plugins.context import PluginContext
from leporello.plugins.discover import PLUGIN_ENTRY_POINTS, Found
from leporello.plugins.hermes.finder import PRIVATE, name_engine

if TYPE_CHECKING:
    from collections.abc import Iterator


Register: TypeAlias = Callable[[PluginContext], Any]
_importing = threading.RLock()
"""Held while a plugin is imported: a second thread must not get a half-imported module."""


def import_plugin(found: Found) -> Any:
    """Import a plugin: a folder as a package of its own, an installed one by its entry point."""
    if found.problem:
        raise PluginError(f"{found.problem}.", plugin=found.name, file=found.path)
    hermes.install()
    with blame(found, "importing it"):
        if found.path is None:
            group = ENGINE_ENTRY_POINTS if found.kind == "engine" else PLUGIN_ENTRY_POINTS
            return EntryPoint(found.name, found.target, group).load()
        return _import_folder(found, found.path)


def register_function(plugin: Any, found: Found) -> Register | None:
    """Return a plugin's `register`: an entry point may name it, the module that holds it, or the engine's class."""
    if inspect.isclass(plugin):
        engine: Any = plugin  # a class that is no engine is refused there
        return lambda context: context.register_context_engine(engine)
    register = getattr(plugin, "register", None) if isinstance(plugin, ModuleType) else plugin
    if register is not None and not callable(register):
        raise PluginError("its `register` is not a function.", plugin=found.name, file=found.path)
    return register


def run_register(register: Register, found: Found) -> PluginContext:
    """Let a plugin register what it offers."""
    context = PluginContext(found.name, general=found.kind == "plugin")
    with blame(found, "its register(ctx)"):
        register(context)
    return context


def engine_class(module: ModuleType, found: Found) -> tuple[type[ContextEngine], str]:
    """Return the engine that a folder's module defines or takes from its own files, and a note if there are several."""
    own = {
        value.__name__: value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, ContextEngine)
        and f"{value.__module__}.".startswith(f"{module.__name__}.")
    }
    concrete = [own[name] for name in sorted(own) if not inspect.isabstract(own[name])] or list(own.values())
    leaves = [one for one in concrete if not any(other is not one and one in other.__mro__ for other in concrete)]
    if not leaves:
        raise PluginError(
            "defines neither register(ctx) nor a subclass of ContextEngine.",
            plugin=found.name,
            file=getattr(module, "__file__", None) or f"entry point {found.target}",
        )
    note = ""
    if len(leaves) > 1:
        names = ", ".join(one.__name__ for one in leaves)
        note = f"plugin '{found.name}' defines several engines: {names}; the first is used, register(ctx) can say which"
    return leaves[0], note


@contextmanager
def blame(found: Found, doing: str, *, made: Any = None) -> Iterator[None]:
    """Turn whatever a plugin's code raises into a PluginError with the file and line in the plugin where it happened.

    `made` is the class or function that was called: where no line of the plugin took part, its definition is named.
    """
    call = ForeignCall()
    try:
        with call:
            yield
    except BaseException as error:
        if not call.blames(error):
            raise
        if isinstance(error, PluginError) and error.file is not None:
            raise
        file, line = _scene(error, found, made)
        cause = (
            error.problem
            if isinstance(error, PluginError)
            else f"{doing} failed: {_text(error)}{_advice(error, found)}"
        )
        raise PluginError(cause, plugin=found.name, file=file, line=line) from error


def _import_folder(found: Found, folder: Path) -> ModuleType:
    place = hashlib.blake2b(str(folder).encode(), digest_size=4).hexdigest()
    name = f"{PRIVATE}{found.name.replace('.', '_')}_{place}"
    if found.kind == "engine":
        name_engine(found.name, name)
    with _importing:
        return sys.modules.get(name) or _import_as(name, folder)


def _import_as(name: str, folder: Path) -> ModuleType:
    spec = spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"Python has no loader for {folder / '__init__.py'}")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        # A half-imported plugin must not look like a whole one when it is tried again.
        for half in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[half]
        raise
    return module


def _scene(error: BaseException, found: Found, made: Any) -> tuple[Path | str | None, int | None]:
    """Return the innermost line of the plugin that took part in an error."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno
    frames = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if found.path is not None and found.path in Path(frame.filename).parents
    ]
    if frames:
        return frames[-1]
    return _definition(made) or (found.path / "__init__.py" if found.path else f"entry point {found.target}", None)


def _definition(made: Any) -> tuple[str, int] | None:
    try:
        return inspect.getfile(made), inspect.getsourcelines(made)[1]
    except (TypeError, OSError):
        return None


def _text(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it wanted to end the program (SystemExit: {error.code})"
    if isinstance(error, KeyboardInterrupt):
        return "it raised a KeyboardInterrupt of its own"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _advice(error: BaseException, found: Found) -> str:
    """Help with the one mistake that everybody makes: importing a file of the folder as if it were installed."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and found.path and any((found.path / missing).with_suffix(suffix).exists() for suffix in ("", ".py")):
        return f". It lies beside __init__.py: write `from . import {missing}`"
    return ""
